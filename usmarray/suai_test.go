package usmarray

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// goodInterface returns a dictionary that Check accepts. Its address is not valid memory.
func goodInterface() USMInterface {
	return USMInterface{Shape: []int{2, 3}, TypeStr: "<f4", Data: 0x100000, Version: 1, SyclObj: SyclObj{Filter: "opencl:cpu:0"}}
}

// TestValidate tests the rows of the table of USMInterface.Check that need no device.
func TestValidate(t *testing.T) {
	huge := maxInt/2 + 1
	for _, c := range []struct {
		name string
		edit func(*USMInterface)
		key  string // the invalid key; empty if the dictionary is valid
		want string
	}{
		{"good", func(*USMInterface) {}, "", ""},
		{"scalar", func(d *USMInterface) { d.Shape = nil }, "", ""},
		{"empty", func(d *USMInterface) { d.Shape = []int{0, huge} }, "", ""},
		{"empty and wild", func(d *USMInterface) { d.Shape, d.Strides = []int{3, 0, 2}, []int{maxInt, minInt, minInt} }, "", ""},
		{"negative strides", func(d *USMInterface) { d.Strides, d.Offset = []int{-3, -1}, 5 }, "", ""},
		{"zero strides", func(d *USMInterface) { d.Strides = []int{0, 0} }, "", ""},
		{"one field", func(d *USMInterface) { d.TypeDescr = []TypeField{{"", "<f4", nil}} }, "", ""},
		{"within the allocation", func(d *USMInterface) { d.Allocation = Extent{0x100000, 24} }, "", ""},

		{"version missing", func(d *USMInterface) { d.Version = 0 }, "version", "understands 1"},
		{"version 2", func(d *USMInterface) { d.Version = 2 }, "version", "understands 1"},
		{"negative dimension", func(d *USMInterface) { d.Shape = []int{2, -3} }, "shape", "cannot be negative"},
		{"65 dimensions", func(d *USMInterface) { d.Shape = make([]int, 65) }, "shape", "at most 64"},
		{"product overflows", func(d *USMInterface) { d.Shape = []int{huge, 8} }, "shape", "more elements"},
		{"empty and not countable", func(d *USMInterface) { d.Shape = []int{0, huge, 8} }, "shape", "more elements"},
		{"bytes overflow", func(d *USMInterface) { d.Shape = []int{maxInt / 2} }, "shape", "more memory than can be addressed"},
		{"span overflows", func(d *USMInterface) { d.Strides = []int{huge, huge} }, "shape", "more memory than can be addressed"},
		{"span overflows downwards", func(d *USMInterface) { d.Shape, d.Strides = []int{3}, []int{minInt} }, "shape", "more memory than can be addressed"},
		{"offset overflows", func(d *USMInterface) { d.Offset = maxInt }, "shape", "more memory than can be addressed"},
		{"span as wide as the address space", func(d *USMInterface) {
			d.Data, d.Offset, d.TypeStr = 1<<(intBits-1), -(maxInt/2 + 1), "|i1"
			d.Shape, d.Strides = []int{2}, []int{maxInt}
		}, "shape", "more memory than can be addressed"},
		{"typestr missing", func(d *USMInterface) { d.TypeStr = "" }, "typestr", "missing"},
		{"big-endian", func(d *USMInterface) { d.TypeStr = ">f4" }, "typestr", "byte order"},
		{"big-endian byte", func(d *USMInterface) { d.TypeStr = ">u1" }, "typestr", "byte order"},
		{"no order", func(d *USMInterface) { d.TypeStr = "f4" }, "typestr", "byte order"},
		{"objects", func(d *USMInterface) { d.TypeStr = "|O" }, "typestr", "objects"},
		{"void", func(d *USMInterface) { d.TypeStr = "|V8" }, "typestr", "structured"},
		{"text", func(d *USMInterface) { d.TypeStr = "<U4" }, "typestr", "text"},
		{"date", func(d *USMInterface) { d.TypeStr = "<M8" }, "typestr", "date"},
		{"long double", func(d *USMInterface) { d.TypeStr = "<f16" }, "typestr", "size"},
		{"unknown kind", func(d *USMInterface) { d.TypeStr = "<q8" }, "typestr", "not understood"},
		{"fields", func(d *USMInterface) { d.TypeDescr = []TypeField{{"x", "<f4", nil}, {"y", "<f4", nil}} }, "typedescr", "structured"},
		{"array field", func(d *USMInterface) { d.TypeDescr = []TypeField{{"", "<f4", []int{2}}} }, "typedescr", "structured"},
		{"field of another type", func(d *USMInterface) { d.TypeDescr = []TypeField{{"", "<i4", nil}} }, "typedescr", "not that of typestr"},
		{"strides of another length", func(d *USMInterface) { d.Strides = []int{1} }, "strides", "1 strides for 2"},
		{"null", func(d *USMInterface) { d.Data = 0 }, "data", "null"},
		{"null and empty", func(d *USMInterface) { d.Data, d.Shape = 0, []int{0} }, "data", "null"},
		{"below address 0", func(d *USMInterface) { d.Strides = []int{-0x40000, 1} }, "data", "address space"},
		{"end of the address space", func(d *USMInterface) { d.Data = ^uintptr(0) - 7 }, "data", "address space"},
		{"overrun", func(d *USMInterface) { d.Allocation = Extent{0x100000, 23} }, "data", "allocation"},
		{"overrun by offset", func(d *USMInterface) { d.Allocation, d.Offset = Extent{0x100000, 24}, 1 }, "data", "allocation"},
		{"overrun below", func(d *USMInterface) { d.Allocation, d.Strides = Extent{0x100000, 24}, []int{-3, 1} }, "data", "allocation"},
		{"impossible allocation", func(d *USMInterface) { d.Allocation = Extent{0x100000, ^uintptr(0)} }, "data", "wraps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := goodInterface()
			c.edit(&d)
			_, err := d.Check()
			if c.key == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrInterface)
			oe := testenv.As[*OpError](t, err)
			require.Equal(t, c.key, oe.Key, err)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestResolveAllocatesNothing(t *testing.T) {
	d := goodInterface()
	d.Strides = []int{3, 1}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := d.Check(); err != nil {
			t.Fatal(err)
		}
	}))
}

// needExactEnd skips the test if the driver's block is larger than the array's memory, because the driver does not
// align.
func needExactEnd(t *testing.T, rt *syclobj.Runtime, q *syclobj.Queue, a *Array) {
	lo := uintptr(a.Pointer())
	for _, span := range [][2]uintptr{{lo - 1, lo}, {lo, lo + uintptr(a.NBytes()) + 1}} {
		if place, err := rt.PlaceOf(q.Context(), nil, span[0], span[1]); err == nil {
			place.Release()
			t.Skip("the driver's block is larger than the array")
		}
	}
}

// TestImportErrors tests the errors that depend on the device.
func TestImportErrors(t *testing.T) {
	rt, q := testsycl.Need(t)
	a := testenv.Held(Arange[float32](testsycl.USM(t, q, syclobj.USMShared), 0, 1, 6))(t)
	good := testenv.Must(a.USMInterface())(t)
	other := testenv.Opened(rt.NewContext(q.Device()))(t)
	goMemory := make([]float32, 6)
	var released int
	closedQ := testenv.Must(rt.NewQueue(nil, q.Device(), syclobj.OutOfOrder))(t)
	require.NoError(t, closedQ.Close())
	closedContext := testenv.Must(rt.NewContext(q.Device()))(t)
	require.NoError(t, closedContext.Close())
	for _, c := range []struct {
		name string
		edit func(*USMInterface)
		kind error
		key  string
		want string
	}{
		{"syclobj missing", func(d *USMInterface) { d.SyclObj = SyclObj{} }, ErrInterface, "syclobj", "missing"},
		{"two forms of syclobj", func(d *USMInterface) { d.SyclObj = SyclObj{Filter: "opencl:cpu:0", Queue: closedQ} }, ErrInterface, "syclobj", "several forms"},
		{"no such device", func(d *USMInterface) { d.SyclObj = SyclObj{Filter: "level_zero:gpu:7"} }, syclobj.ErrNoDevice, "syclobj", "level_zero:gpu:7"},
		{"bad filter", func(d *USMInterface) { d.SyclObj = SyclObj{Filter: "opencl:toaster"} }, ErrInterface, "syclobj", "toaster"},
		{"nil context", func(d *USMInterface) { d.SyclObj = SyclObj{Context: nil} }, ErrInterface, "syclobj", "nil"},
		{"nil queue", func(d *USMInterface) { d.SyclObj = SyclObj{Queue: nil} }, ErrInterface, "syclobj", "nil"},
		{"closed queue", func(d *USMInterface) { d.SyclObj = SyclObj{Queue: closedQ} }, syclobj.ErrClosed, "syclobj", "closed"},
		{"closed context", func(d *USMInterface) { d.SyclObj = SyclObj{Context: closedContext} }, ErrInterface, "syclobj", "closed"},
		{"the host's filter", func(d *USMInterface) { d.SyclObj = SyclObj{Filter: "host"} }, ErrInterface, "syclobj", "host"},
		{"the host's context", func(d *USMInterface) { d.SyclObj = SyclObj{Context: rt.HostQueue().Context()} }, ErrInterface, "syclobj", "host"},
		{"the host's queue", func(d *USMInterface) { d.SyclObj = SyclObj{Queue: rt.HostQueue()} }, ErrInterface, "syclobj", "host"},
		{"other context", func(d *USMInterface) { d.SyclObj = SyclObj{Context: other} }, ErrNotUSM, "data", "not unified shared memory"},
		{"Go memory", func(d *USMInterface) { d.Data = uintptr(unsafe.Pointer(&goMemory[0])); d.Allocation = Extent{} }, ErrNotUSM, "data", "not unified shared memory"},
		{"wild", func(d *USMInterface) { d.Data = 0x1234567890; d.Allocation = Extent{} }, ErrNotUSM, "data", "not unified shared memory"},
		{"low", func(d *USMInterface) { d.Data = 8; d.Allocation = Extent{} }, ErrNotUSM, "data", "not unified shared memory"},
		{"non-canonical", func(d *USMInterface) { d.Data = 0x8000000000000000; d.Allocation = Extent{} }, ErrNotUSM, "data", "not unified shared memory"},
		{"overrun, owner unknown", func(d *USMInterface) { d.Shape = []int{7}; d.Allocation = Extent{} }, ErrNotUSM, "data", "beyond"},
		{"overrun below, owner unknown", func(d *USMInterface) { d.Offset = -1; d.Allocation = Extent{} }, ErrNotUSM, "data", "not unified shared memory"},
		{"empty outside", func(d *USMInterface) { d.Shape = []int{0}; d.Data = 0x1000; d.Allocation = Extent{} }, ErrNotUSM, "data", "not unified shared memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "other context" && !testsycl.SeparateContexts(t, rt, q) {
				t.Skipf("the contexts of %s share its memory", q.Device())
			}
			if strings.HasPrefix(c.name, "overrun") {
				needExactEnd(t, rt, q, a)
			}
			d := good
			c.edit(&d)
			require.NotEmpty(t, d.String())
			_, err := FromUSMInterface(rt, &d, func() { released++ })
			testenv.Failed(t, err, c.kind, c.want)
			oe := testenv.As[*OpError](t, err)
			require.Equal(t, c.key, oe.Key)
		})
	}
	require.Zero(t, released, "a failed import leaves the owner alone")
	runtime.KeepAlive(goMemory)
	require.ErrorIs(t, testenv.ErrorOf(FromUSMInterface(openHostOnly(t), &good, nil)), syclobj.ErrNoSYCL)
}

func openHostOnly(t testing.TB) *syclobj.Runtime {
	return testenv.Opened(syclobj.Open(syclobj.HostOnly()))(t)
}

// views returns the layouts for tests of exchange.
func views(t testing.TB, a *Array) map[string]*Array {
	m := testenv.Must(a.Reshape(4, 6))(t)
	get := func(items ...Index) *Array { return testenv.Must(m.Index(items...))(t) }
	return map[string]*Array{
		"whole":           m,
		"offset":          get(IndexFrom(1)),
		"columns":         get(All, IndexRange(1, 5).By(2)),
		"reversed":        get(All.By(-1), All.By(-1)),
		"reversed middle": get(IndexRange(2, 0).By(-1), IndexRange(4, 1).By(-2)),
		"transposed":      testenv.Must(m.Transpose())(t),
		"broadcast":       testenv.Must(get(IndexAt(1), NewAxis).Broadcast(3, 6))(t),
		"size-1 axes":     get(IndexRange(1, 2), NewAxis, IndexRange(2, 3).By(5)),
		"scalar":          get(IndexAt(2), IndexAt(3)),
		"empty":           get(IndexRange(2, 2)),
		"read-only":       m.AsReadOnly(),
	}
}

// syclForm is a form of the syclobj of a dictionary.
type syclForm int

const (
	defaultForm syclForm = iota // as USMInterface returns it
	filterForm
	contextForm
	queueForm
)

// interfaceAs describes an array with another form of syclobj.
func interfaceAs(a *Array, form syclForm) (USMInterface, error) {
	d, err := a.USMInterface()
	if err != nil {
		return d, err
	}
	switch form {
	case filterForm:
		d.SyclObj = SyclObj{Filter: a.Place().FilterString()}
	case contextForm:
		var o SyclObj
		o.Context, err = a.Place().Context()
		d.SyclObj = o
	case queueForm:
		var o SyclObj
		o.Queue, err = a.Place().Queue()
		d.SyclObj = o
	}
	return d, err
}

func TestInterfaceRoundTrip(t *testing.T) {
	rt, q := testsycl.Need(t)
	forms := []syclForm{defaultForm, filterForm, contextForm, queueForm}
	for _, k := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		a := testenv.Held(Arange[float64](testsycl.USM(t, q, k), 0, 1, 24))(t)
		for name, v := range views(t, a) {
			t.Run(k.String()+" "+name, func(t *testing.T) {
				for _, form := range forms {
					d := testenv.Must(interfaceAs(v, form))(t)
					require.Equal(t, v.IsC(), d.Strides == nil)
					require.Equal(t, v.ReadOnly(), d.ReadOnly)
					require.Zero(t, d.Offset)
					require.Equal(t, addressOf(v), d.Data)
					released := 0
					owner := v.Retain()
					b := testenv.Must(FromUSMInterface(rt, &d, func() { released++; owner.Release() }))(t)
					require.Equal(t, addressOf(v), addressOf(b))
					require.Equal(t, v.Shape(), b.Shape())
					if d.Strides != nil {
						require.Equal(t, v.Strides(), b.Strides())
					}
					require.Equal(t, v.ReadOnly(), b.ReadOnly())
					require.Equal(t, k, b.Place().Kind())
					require.Same(t, v.Place(), b.Place())
					require.Equal(t, elements(t, v), elements(t, b))
					w := b.Retain()
					b.Release()
					require.Zero(t, released)
					w.Release()
					require.Equal(t, 1, released)
				}
			})
		}
	}
}

func TestInterfaceOfOddAddresses(t *testing.T) {
	rt, q := testsycl.Need(t)
	a := testenv.Held(Arange[int32](testsycl.USM(t, q, syclobj.USMShared), 0, 1, 24))(t)
	d := testenv.Must(a.USMInterface())(t)
	// The start of the memory with an offset, and negative strides from it.
	d.Shape, d.Strides, d.Offset = []int{3, 4}, []int{-8, -2}, 23
	b := testenv.Held(FromUSMInterface(rt, &d, nil))(t)
	require.Equal(t, "[[23 21 19 17]\n [15 13 11  9]\n [ 7  5  3  1]]", b.String())
	// The first element, with negative strides below it.
	d.Data += 23 * 4
	d.Offset = 0
	c := testenv.Held(FromUSMInterface(rt, &d, nil))(t)
	require.Equal(t, b.String(), c.String())
	require.Equal(t, addressOf(b), addressOf(c))
	// An invalid address with an offset that leads to the memory.
	d.Data, d.Offset = 8+d.Data%8, int(d.Data-8-d.Data%8)/4
	f := testenv.Held(FromUSMInterface(rt, &d, nil))(t)
	require.Equal(t, b.String(), f.String())
	require.Equal(t, addressOf(b), addressOf(f))
	d.Data, d.Offset = addressOf(b), 0
	// A negative offset.
	d.Offset, d.Data = -1, d.Data+4
	require.Equal(t, b.String(), testenv.Held(FromUSMInterface(rt, &d, nil))(t).String())
}

func TestInterfaceErrorsOut(t *testing.T) {
	h := testenv.Held(Zeros(memmgr.Host(), Float32, []int{2}))(t)
	require.ErrorIs(t, testenv.ErrorOf(h.USMInterface()), ErrNotUSM)
	rt, q := testsycl.Need(t)
	b := testenv.Held(Zeros(testsycl.USM(t, q, syclobj.USMShared), Bfloat16, []int{2}))(t)
	testenv.Failed(t, testenv.ErrorOf(b.USMInterface()), ErrType, "DLPack")
	oq := otherQueue(t, rt, q)
	a := testenv.Held(Arange[float32](testsycl.USM(t, oq, syclobj.USMShared), 0, 1, 4))(t)
	d := testenv.Must(interfaceAs(a, filterForm))(t)
	if testsycl.SeparateContexts(t, rt, q) {
		require.ErrorIs(t, testenv.ErrorOf(FromUSMInterface(rt, &d, nil)), ErrNotUSM, "the filter string names the default context")
	}
	for _, form := range []syclForm{defaultForm, contextForm, queueForm} {
		d = testenv.Must(interfaceAs(a, form))(t)
		c := testenv.Held(FromUSMInterface(rt, &d, nil))(t)
		require.Equal(t, "[0. 1. 2. 3.]", c.String())
		require.False(t, c.Place().IsDefaultContext())
	}
}

func TestInterfaceJSON(t *testing.T) {
	d := goodInterface()
	d.Strides, d.TypeDescr = []int{3, 1}, []TypeField{{"", "<f4", nil}}
	require.JSONEq(t, `{"shape":[2,3],"typestr":"<f4","typedescr":[["","<f4"]],"data":["0x100000",false],
		"strides":[3,1],"offset":0,"version":1,"syclobj":{"form":"filter string","filter":"opencl:cpu:0"}}`, d.String())
	require.JSONEq(t, `{"shape":[],"typestr":"","typedescr":null,"data":["0x0",false],"strides":null,"offset":0,"version":0,"syclobj":null}`, USMInterface{}.String())
}
