package usmarray

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// meanings lists the sentinels in groups of one meaning. An error matches all or none of a group.
var meanings = [][]named{
	{{"usmarray.ErrLayout", ErrLayout}, {"dlpack.ErrLayout", dlpack.ErrLayout}},
	{{"usmarray.ErrIndex", ErrIndex}},
	{{"usmarray.ErrType", ErrType}},
	{{"usmarray.ErrInterface", ErrInterface}},
	{{"usmarray.ErrNotUSM", ErrNotUSM}, {"syclobj.ErrNotUSM", syclobj.ErrNotUSM}},
	{{"usmarray.ErrExchange", ErrExchange}},
	{{"usmarray.ErrReadOnly", ErrReadOnly}, {"memmgr.ErrReadOnly", memmgr.ErrReadOnly}, {"dlpack.ErrReadOnly", dlpack.ErrReadOnly}},
	{{"usmarray.ErrNotHostReadable", ErrNotHostReadable}, {"memmgr.ErrNotHostReadable", memmgr.ErrNotHostReadable}},
	{{"usmarray.ErrOutOfMemory", ErrOutOfMemory}, {"memmgr.ErrOutOfMemory", memmgr.ErrOutOfMemory}, {"dlpack.ErrOutOfMemory", dlpack.ErrOutOfMemory}},
	{{"memmgr.ErrRequest", memmgr.ErrRequest}},
	{{"memmgr.ErrReleased", memmgr.ErrReleased}},
	{{"syclobj.ErrNotDefault", syclobj.ErrNotDefault}},
}

type named struct {
	name string
	err  error
}

// requireKinds checks that an error matches the given kinds, those with the same meaning, and no other kinds.
func requireKinds(t *testing.T, err error, kinds ...error) {
	t.Helper()
	oe := testenv.As[*OpError](t, err)
	require.NotEmpty(t, oe.Op)
	require.True(t, strings.HasPrefix(err.Error(), "usmarray: "+oe.Op+": "), "%v", err)
	for _, group := range meanings {
		want := false
		for _, m := range group {
			for _, k := range kinds {
				want = want || k == m.err
			}
		}
		for _, m := range group {
			require.Equal(t, want, errors.Is(err, m.err), "%s of: %v", m.name, err)
		}
	}
}

// TestRefusals: errors match the sentinels of their kind in all packages.
func TestRefusals(t *testing.T) {
	r := memmgr.Host()
	a := testenv.Held(Zeros(r, Float32, []int{2, 3}))(t)
	ro := a.AsReadOnly()
	bits := testenv.Held(Zeros(r, dlpack.Float4E2M1FN, []int{4}))(t)
	odd := testenv.Must(bits.Index(IndexFrom(1)))(t)
	narrow := testenv.Held(Zeros(r, Float32, []int{2}))(t)
	complexes := testenv.Held(Zeros(r, Complex128, []int{2}))(t)
	marked := testenv.Held(Zeros(r, Float32, []int{2}))(t)
	marked.Buffer().SetReadOnly()
	_, _, noQueue := QueueOn(testsycl.Runtime(t), SyclObj{})
	list := func(err error) []error { return []error{err} }
	for _, c := range []struct {
		name  string
		kinds []error
		err   error
		text  string
	}{
		{"New shape", list(ErrLayout), testenv.ErrorOf(New(r, Float32, []int{-1})), ""},
		{"New size", list(ErrLayout), testenv.ErrorOf(New(r, Float64, []int{maxInt / 4})), ""},
		{"New lanes", list(ErrType), testenv.ErrorOf(New(r, DataType{Code: 2, Bits: 32, Lanes: 2}, nil)), ""},
		{"New memory", list(ErrOutOfMemory), testenv.ErrorOf(New(r, Float32, []int{1 << 50})), ""},
		{"New limit", list(ErrOutOfMemory), testenv.ErrorOf(New(memmgr.NewLimit(r, 64), Float32, []int{999})), ""},
		{"New resource", list(memmgr.ErrRequest), testenv.ErrorOf(New(nil, Float32, nil)), ""},
		{"FromSlice", list(ErrLayout), testenv.ErrorOf(FromSlice(r, []int8{1}, []int{2})), ""},
		{"Arange memory", list(ErrOutOfMemory), testenv.ErrorOf(Arange[int32](r, 0, 1, 1<<50)), ""},
		{"Arange size", list(ErrLayout), testenv.ErrorOf(Arange[int32](r, 0, 1, maxInt)), ""},
		{"Arange number", list(ErrLayout), testenv.ErrorOf(Arange[int8](r, 0, 1, -1)), ""},
		{"Arange type", list(ErrType), testenv.ErrorOf(Arange[bool](r, false, true, 1)), ""},
		{"Full value", list(ErrType), testenv.ErrorOf(Full(r, Uint8, nil, -1)), "usmarray: Fill: "},
		{"Index number", list(ErrLayout), testenv.ErrorOf(a.Index(All, All, All)), ""},
		{"Index range", []error{ErrLayout, ErrIndex}, testenv.ErrorOf(a.Index(IndexAt(2))), ""},
		{"Transpose", list(ErrLayout), testenv.ErrorOf(a.Transpose(0, 0)), ""},
		{"Transpose axis", []error{ErrLayout, ErrIndex}, testenv.ErrorOf(a.Transpose(0, 2)), ""},
		{"Reshape", list(ErrLayout), testenv.ErrorOf(a.Reshape(4)), ""},
		{"Broadcast", list(ErrLayout), testenv.ErrorOf(a.Broadcast(4)), ""},
		{"At", []error{ErrLayout, ErrIndex}, testenv.ErrorOf(a.At(0, 3)), ""},
		{"At number", list(ErrLayout), testenv.ErrorOf(a.At(0)), ""},
		{"SetAt value", list(ErrType), a.SetAt("x", 0, 0), ""},
		{"SetAt read-only", list(ErrReadOnly), ro.SetAt(1, 0, 0), ""},
		{"Fill read-only memory", list(ErrReadOnly), marked.Fill(1), ""},
		{"View read-only", list(ErrReadOnly), View(ro, func([]float32) error { return nil }), ""},
		{"Slice type", list(ErrType), testenv.ErrorOf(Slice[int32](a)), ""},
		{"Slice layout", list(ErrLayout), testenv.ErrorOf(Slice[float32](testenv.Must(a.Transpose())(t))), ""},
		{"ToSlice type", list(ErrType), testenv.ErrorOf(ToSlice[int32](a)), ""},
		{"AsType of a complex number", list(ErrType), testenv.ErrorOf(complexes.AsType(r, Float32)), ".real"},
		{"AsType memory", list(ErrOutOfMemory), testenv.ErrorOf(a.AsType(memmgr.NewLimit(r, 1), Float64)), "usmarray: AsType: "},
		{"AsType memory of the same type", list(ErrOutOfMemory), testenv.ErrorOf(a.AsType(memmgr.NewLimit(r, 1), Float32)), "usmarray: AsType: "},
		{"CopyFrom type", list(ErrType), a.CopyFrom(bits), ""},
		{"CopyFrom shape", list(ErrLayout), narrow.CopyFrom(a), ""},
		{"CopyFromSlice type", list(ErrType), CopyFromSlice(a, make([]int8, 6)), ""},
		{"FromBuffer", list(ErrLayout), testenv.ErrorOf(FromBuffer(a.Buffer(), Float32, mustLayout(t, []int{1 << 20}, nil, 0))), ""},
		{"NewLayout", list(ErrLayout), testenv.ErrorOf(NewLayout([]int{2}, []int{1, 1}, 0)), ""},
		{"Check", list(ErrInterface), testenv.ErrorOf(new(USMInterface).Check()), ""},
		{"FromUSMInterface", list(ErrInterface), testenv.ErrorOf(FromUSMInterface(nil, nil, nil)), ""},
		{
			"USMInterface", list(ErrNotUSM), testenv.ErrorOf(a.USMInterface()),
			"with a SYCL device, copy the array to USM first (ToDevice); without one, share it by DLPack",
		},
		{"QueueOn", list(ErrInterface), noQueue, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireKinds(t, c.err, c.kinds...)
			require.ErrorContains(t, c.err, c.text)
		})
	}
	if !dlpack.Supported() {
		return
	}
	t.Run("DLPack", func(t *testing.T) {
		requireKinds(t, testenv.ErrorOf(odd.DLPackWith(ExportOptions{})), ErrExchange)
		requireKinds(t, testenv.ErrorOf(ro.DLPackWith(ExportOptions{Legacy: true})), ErrExchange, ErrReadOnly)
		requireKinds(t, testenv.ErrorOf(a.DLPackWith(ExportOptions{XPU: true})), ErrExchange)
		requireKinds(t, testenv.ErrorOf(a.DLPackWith(ExportOptions{Device: on(dlpack.Device{Type: dlpack.DeviceCUDA})})), ErrExchange)
		requireKinds(t, testenv.ErrorOf(a.DLPackWith(ExportOptions{Copy: CopyAlways, CopyTo: memmgr.NewLimit(r, 8)})), ErrOutOfMemory)
		requireKinds(t, testenv.ErrorOf(FromDLPack(nil, dlpack.Tensor{})), ErrExchange)
	})
}

// TestRefusalsOfDevices tests the errors that need device memory or SYCL.
func TestRefusalsOfDevices(t *testing.T) {
	rt, q := testsycl.Need(t)
	device := testenv.Held(Zeros(testsycl.USM(t, q, syclobj.USMDevice), Float32, []int{3}))(t)
	requireKinds(t, testenv.ErrorOf(Slice[float32](device)), ErrNotHostReadable)
	requireKinds(t, testenv.ErrorOf(New(testsycl.USM(t, q, syclobj.USMDevice), Float32, []int{1 << 50})), ErrOutOfMemory)

	host := testenv.Held(Zeros(memmgr.Host(), Float32, []int{3}))(t)
	d := testenv.Must(device.USMInterface())(t)
	d.Data, d.Allocation = addressOf(host), Extent{}
	requireKinds(t, testenv.ErrorOf(FromUSMInterface(rt, &d, nil)), ErrNotUSM)
	d = testenv.Must(device.USMInterface())(t)
	d.SyclObj = SyclObj{Filter: "opencl:gpu:99"}
	requireKinds(t, testenv.ErrorOf(FromUSMInterface(rt, &d, nil)), ErrInterface)

	other := testenv.Held(Zeros(testsycl.USM(t, otherQueue(t, rt, q), syclobj.USMDevice), Float32, []int{3}))(t)
	requireKinds(t, testenv.ErrorOf(other.DLPack()), ErrExchange, syclobj.ErrNotDefault)
	oneAPI := dlpack.View{Data: host.Pointer(), Device: dlpack.Device{Type: dlpack.DeviceOneAPI}, DataType: Float32, Shape: []int64{2}}
	tensor := testenv.Held(dlpack.Export(&oneAPI, 0, true, dlpack.Owner{}))(t)
	requireKinds(t, testenv.ErrorOf(FromDLPack(rt, tensor)), ErrExchange, ErrNotUSM)
}

// TestErrorOfErrors: a wrapped error matches the kinds of its cause.
func TestErrorOfErrors(t *testing.T) {
	for _, cause := range []error{memmgr.ErrReadOnly, dlpack.ErrReadOnly} {
		inner := wrapErr("Fill", nil, cause)
		outer := wrapErr("Full", nil, fmt.Errorf("job: %w", inner))
		requireKinds(t, outer, ErrReadOnly)
	}
}
