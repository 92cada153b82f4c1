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
	a := own(t)(Zeros(r, Float32, []int{2, 3}))
	ro := a.AsReadOnly()
	bits := own(t)(Zeros(r, dlpack.Float4E2M1FN, []int{4}))
	odd := testenv.Must(bits.Index(IndexFrom(1)))(t)
	narrow := own(t)(Zeros(r, Float32, []int{2}))
	marked := own(t)(Zeros(r, Float32, []int{2}))
	marked.Buffer().SetReadOnly()
	list := func(err error) []error { return []error{err} }
	for _, c := range []struct {
		name  string
		kinds []error
		fn    func() error
	}{
		{"New shape", list(ErrLayout), func() error { _, err := New(r, Float32, []int{-1}); return err }},
		{"New size", list(ErrLayout), func() error { _, err := New(r, Float64, []int{maxInt / 4}); return err }},
		{"New lanes", list(ErrType), func() error { _, err := New(r, DataType{Code: 2, Bits: 32, Lanes: 2}, nil); return err }},
		{"New memory", list(ErrOutOfMemory), func() error { _, err := New(r, Float32, []int{1 << 50}); return err }},
		{"New limit", list(ErrOutOfMemory), func() error { _, err := New(memmgr.NewLimit(r, 64), Float32, []int{999}); return err }},
		{"New resource", list(memmgr.ErrRequest), func() error { _, err := New(nil, Float32, nil); return err }},
		{"FromSlice", list(ErrLayout), func() error { _, err := FromSlice(r, []int8{1}, []int{2}); return err }},
		{"Arange memory", list(ErrOutOfMemory), func() error { _, err := Arange[int32](r, 0, 1, 1<<50); return err }},
		{"Arange size", list(ErrLayout), func() error { _, err := Arange[int32](r, 0, 1, maxInt); return err }},
		{"Arange number", list(ErrLayout), func() error { _, err := Arange[int8](r, 0, 1, -1); return err }},
		{"Arange type", list(ErrType), func() error { _, err := Arange[bool](r, false, true, 1); return err }},
		{"Full value", list(ErrType), func() error {
			_, err := Full(r, Uint8, nil, -1)
			require.ErrorContains(t, err, "usmarray: Fill: ")
			return err
		}},
		{"Index number", list(ErrLayout), func() error { _, err := a.Index(All, All, All); return err }},
		{"Index range", []error{ErrLayout, ErrIndex}, func() error { _, err := a.Index(IndexAt(2)); return err }},
		{"Transpose", list(ErrLayout), func() error { _, err := a.Transpose(0, 0); return err }},
		{"Transpose axis", []error{ErrLayout, ErrIndex}, func() error { _, err := a.Transpose(0, 2); return err }},
		{"Reshape", list(ErrLayout), func() error { _, err := a.Reshape(4); return err }},
		{"Broadcast", list(ErrLayout), func() error { _, err := a.Broadcast(4); return err }},
		{"At", []error{ErrLayout, ErrIndex}, func() error { _, err := a.At(0, 3); return err }},
		{"At number", list(ErrLayout), func() error { _, err := a.At(0); return err }},
		{"SetAt value", list(ErrType), func() error { return a.SetAt("x", 0, 0) }},
		{"SetAt read-only", list(ErrReadOnly), func() error { return ro.SetAt(1, 0, 0) }},
		{"Fill read-only memory", list(ErrReadOnly), func() error { return marked.Fill(1) }},
		{"View read-only", list(ErrReadOnly), func() error { return View(ro, func([]float32) error { return nil }) }},
		{"Slice type", list(ErrType), func() error { _, err := Slice[int32](a); return err }},
		{"Slice layout", list(ErrLayout), func() error { _, err := Slice[float32](testenv.Must(a.Transpose())(t)); return err }},
		{"ToSlice type", list(ErrType), func() error { _, err := ToSlice[int32](a); return err }},
		{"AsType of a complex number", list(ErrType), func() error {
			c := own(t)(Zeros(r, Complex128, []int{2}))
			_, err := c.AsType(r, Float32)
			require.ErrorContains(t, err, ".real")
			return err
		}},
		{"AsType memory", list(ErrOutOfMemory), func() error {
			_, err := a.AsType(memmgr.NewLimit(r, 1), Float64)
			require.ErrorContains(t, err, "usmarray: AsType: ")
			return err
		}},
		{"AsType memory of the same type", list(ErrOutOfMemory), func() error {
			_, err := a.AsType(memmgr.NewLimit(r, 1), Float32)
			require.ErrorContains(t, err, "usmarray: AsType: ")
			return err
		}},
		{"CopyFrom type", list(ErrType), func() error { return a.CopyFrom(bits) }},
		{"CopyFrom shape", list(ErrLayout), func() error { return narrow.CopyFrom(a) }},
		{"CopyFromSlice type", list(ErrType), func() error { return CopyFromSlice(a, make([]int8, 6)) }},
		{"FromBuffer", list(ErrLayout), func() error {
			_, err := FromBuffer(a.Buffer(), Float32, mustLayout(t, []int{1 << 20}, nil, 0))
			return err
		}},
		{"NewLayout", list(ErrLayout), func() error { _, err := NewLayout([]int{2}, []int{1, 1}, 0); return err }},
		{"Check", list(ErrInterface), func() error { return func() error { _, err := new(USMInterface).Check(); return err }() }},
		{"FromUSMInterface", list(ErrInterface), func() error { _, err := FromUSMInterface(nil, nil, nil); return err }},
		{"USMInterface", list(ErrNotUSM), func() error {
			_, err := a.USMInterface()
			require.ErrorContains(t, err, "with a SYCL device, copy the array to USM first (ToDevice); without one, share it by DLPack")
			return err
		}},
		{"QueueOn", list(ErrInterface), func() error { _, _, err := QueueOn(testsycl.Runtime(t), SyclObj{}); return err }},
	} {
		t.Run(c.name, func(t *testing.T) { requireKinds(t, c.fn(), c.kinds...) })
	}
	if !dlpack.Supported() {
		return
	}
	t.Run("DLPack", func(t *testing.T) {
		tensor := func(a *Array, o ExportOptions) error { _, err := a.DLPackWith(o); return err }
		requireKinds(t, tensor(odd, ExportOptions{}), ErrExchange)
		requireKinds(t, tensor(ro, ExportOptions{Legacy: true}), ErrExchange, ErrReadOnly)
		requireKinds(t, tensor(a, ExportOptions{XPU: true}), ErrExchange)
		requireKinds(t, tensor(a, ExportOptions{Device: on(dlpack.Device{Type: dlpack.DeviceCUDA})}), ErrExchange)
		requireKinds(t, tensor(a, ExportOptions{Copy: CopyAlways, CopyTo: memmgr.NewLimit(r, 8)}), ErrOutOfMemory)
		_, err := FromDLPack(nil, dlpack.Tensor{})
		requireKinds(t, err, ErrExchange)
	})
}

// TestRefusalsOfDevices tests the errors that need device memory or SYCL.
func TestRefusalsOfDevices(t *testing.T) {
	rt, q := testsycl.Need(t)
	device := own(t)(Zeros(testsycl.USM(t, q, syclobj.USMDevice), Float32, []int{3}))
	_, err := Slice[float32](device)
	requireKinds(t, err, ErrNotHostReadable)
	_, err = New(testsycl.USM(t, q, syclobj.USMDevice), Float32, []int{1 << 50})
	requireKinds(t, err, ErrOutOfMemory)

	host := own(t)(Zeros(memmgr.Host(), Float32, []int{3}))
	d := testenv.Must(device.USMInterface())(t)
	d.Data, d.Allocation = addressOf(host), Extent{}
	_, err = FromUSMInterface(rt, &d, nil)
	requireKinds(t, err, ErrNotUSM)
	d = testenv.Must(device.USMInterface())(t)
	d.SyclObj = SyclObj{Filter: "opencl:gpu:99"}
	_, err = FromUSMInterface(rt, &d, nil)
	requireKinds(t, err, ErrInterface)

	other := own(t)(Zeros(testsycl.USM(t, otherQueue(t, rt, q), syclobj.USMDevice), Float32, []int{3}))
	_, err = other.DLPack()
	requireKinds(t, err, ErrExchange, syclobj.ErrNotDefault)
	oneAPI := dlpack.View{Data: host.Pointer(), Device: dlpack.Device{Type: dlpack.DeviceOneAPI}, DataType: Float32, Shape: []int64{2}}
	tensor := testenv.Held(dlpack.Export(&oneAPI, 0, true, dlpack.Owner{}))(t)
	_, err = FromDLPack(rt, tensor)
	requireKinds(t, err, ErrExchange, ErrNotUSM)
}

// TestErrorOfErrors: a wrapped error matches the kinds of its cause.
func TestErrorOfErrors(t *testing.T) {
	for _, cause := range []error{memmgr.ErrReadOnly, dlpack.ErrReadOnly} {
		inner := wrapErr("Fill", nil, cause)
		outer := wrapErr("Full", nil, fmt.Errorf("job: %w", inner))
		requireKinds(t, outer, ErrReadOnly)
	}
}
