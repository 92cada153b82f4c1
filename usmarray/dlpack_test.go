package usmarray

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

func needDLPack(t testing.TB) {
	t.Helper()
	if !dlpack.Supported() {
		t.Skip("DLPack needs linux and cgo")
	}
}

func TestDLPackRoundTrip(t *testing.T) {
	needDLPack(t)
	rt := testsycl.Runtime(t)
	for _, b := range backends(t) {
		a := testenv.Held(Arange[float32](b.r, 0, 1, 24))(t)
		for name, v := range views(t, a) {
			for _, legacy := range []bool{false, true} {
				t.Run(b.name+" "+name+map[bool]string{true: " legacy"}[legacy], func(t *testing.T) {
					before := v.Buffer().Count()
					x, err := v.DLPackWith(ExportOptions{Legacy: legacy})
					if legacy && v.ReadOnly() {
						require.ErrorIs(t, err, ErrExchange)
						require.Equal(t, before, v.Buffer().Count())
						return
					}
					require.NoError(t, err)
					require.Equal(t, before+1, v.Buffer().Count())
					require.Equal(t, !legacy, isVersioned(x))
					requireTensor(t, x, v)
					w := testenv.Must(FromDLPack(rt, x))(t)
					require.Equal(t, v.Shape(), w.Shape())
					require.Equal(t, v.Strides(), w.Strides())
					require.Equal(t, v.ReadOnly(), w.ReadOnly())
					require.Same(t, v.Place(), w.Place())
					if v.Size() != 0 {
						require.Equal(t, addressOf(v), addressOf(w))
					}
					require.Equal(t, elements(t, v), elements(t, w))
					k := w.Retain()
					w.Release()
					require.Equal(t, before+1, v.Buffer().Count(), "the tensor lives as long as an array on it")
					k.Release()
					eventually(t, func() bool { return v.Buffer().Count() == before })
				})
			}
		}
	}
}

// TestDLPackPackedBackwards: packed elements with a negative stride begin at a whole byte and end within one.
func TestDLPackPackedBackwards(t *testing.T) {
	needDLPack(t)
	rt := testsycl.Runtime(t)
	for _, dt := range []DataType{dlpack.Float6E2M3FN, dlpack.Int4, dlpack.Uint2} {
		for _, b := range backends(t) {
			a := testenv.Held(New(b.r, dt, []int{21}))(t)
			for i := range 21 {
				require.NoError(t, a.SetAt(i%2, i))
			}
			for start := 4; start < 21; start += 4 {
				for stop := range start {
					v := testenv.Must(a.Index(IndexRange(start, stop).By(-1)))(t)
					x := testenv.Must(v.DLPack())(t)
					w, err := FromDLPack(rt, x)
					require.NoErrorf(t, err, "%v from %d to %d", dt, start, stop)
					for i := range v.Size() {
						require.Equal(t, testenv.Must(v.At(i))(t), testenv.Must(w.At(i))(t))
					}
					w.Release()
				}
			}
		}
	}
}

// eventually waits until the reaper has processed a reference that C dropped.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		memmgr.Flush() // memory of places that libraries of CUDA were shown is never released in the background
		return ok()
	}, time.Minute, time.Millisecond)
}

// isVersioned reports whether the tensor's managed struct is a versioned one.
func isVersioned(x dlpack.Tensor) bool {
	_, versioned := x.Managed()
	return versioned
}

// producerTensor reads the DLTensor in a managed struct as its producer wrote it.
func producerTensor(x dlpack.Tensor) (data uintptr, byteOffset uint64, hasStrides bool) {
	const versionedTensor, tensorStrides, tensorByteOffset = 32, 32, 40 // offsets, as in dlpack.h
	t, versioned := x.Managed()
	if versioned {
		t = unsafe.Add(t, versionedTensor)
	}
	data = *(*uintptr)(t)
	byteOffset = *(*uint64)(unsafe.Add(t, tensorByteOffset))
	return data, byteOffset, *(*uintptr)(unsafe.Add(t, tensorStrides)) != 0
}

// requireTensor compares a tensor's raw fields with the rules for producers.
func requireTensor(t *testing.T, x dlpack.Tensor, v *Array) {
	t.Helper()
	data, off, hasStrides := producerTensor(x)
	first := data + uintptr(off)
	switch {
	case v.Size() == 0 && v.Place().IsHost():
		require.Zero(t, first)
	default:
		require.Equal(t, addressOf(v), first)
	}
	lo, _ := v.layout.bounds()
	if v.Place().IsHost() || lo == v.layout.offset || v.Size() == 0 {
		require.Zero(t, off)
	} else {
		require.Equal(t, uint64((v.layout.offset-lo)*4), off, "kDLOneAPI with negative strides has the lowest address")
	}
	require.Equal(t, v.NDim() > 0, hasStrides)
	require.Equal(t, v.ReadOnly() && isVersioned(x), x.Flags()&dlpack.ReadOnly != 0)
	want := dlpack.CPU
	if !v.Place().IsHost() {
		want = dlpack.OneAPI(0)
	}
	require.Equal(t, want, x.Device())
	require.Equal(t, want, testenv.Must(v.DLDevice())(t))
}

func TestDLPackVersions(t *testing.T) {
	needDLPack(t)
	a := testenv.Held(Zeros(memmgr.Host(), Float32, []int{2}))(t)
	for v, versioned := range map[dlpack.Version]bool{{Major: 1}: true, {Major: 1, Minor: 9}: true, {Major: 2}: true, {Major: 0, Minor: 8}: false} {
		x := testenv.Must(a.DLPackWith(ExportOptions{MaxVersion: v}))(t)
		require.Equal(t, versioned, isVersioned(x), v)
		x.Release()
	}
	_, err := a.AsReadOnly().DLPackWith(ExportOptions{MaxVersion: dlpack.Version{Major: 0, Minor: 8}})
	require.ErrorIs(t, err, ErrExchange)
	require.ErrorIs(t, err, dlpack.ErrReadOnly)
}

func TestDLPackDevicesAndCopies(t *testing.T) {
	rt, q := testsycl.Need(t)
	for _, k := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		t.Run(k.String(), func(t *testing.T) {
			r := testsycl.USM(t, q, k)
			a := testenv.Held(Zeros(r, Int32, []int{2, 3}))(t)
			require.NoError(t, a.Fill(7)) // left pending on device memory
			cpu := testenv.Must(a.DLPackWith(ExportOptions{Device: on(dlpack.CPU)}))(t)
			require.Equal(t, dlpack.CPU, cpu.Device())
			same := uintptr(cpu.Data()) == addressOf(a)
			require.Equal(t, k == syclobj.USMShared || k == syclobj.USMHost, same)
			require.Equal(t, !same, cpu.Flags()&dlpack.IsCopied != 0)
			require.Equal(t, int32(7), *(*int32)(cpu.Data()))
			require.True(t, testenv.Held(FromDLPack(rt, cpu))(t).Place().IsHost())

			never, err := a.DLPackWith(ExportOptions{Device: on(dlpack.CPU), Copy: CopyNever})
			if k == syclobj.USMDevice {
				require.ErrorIs(t, err, ErrExchange)
			} else {
				require.NoError(t, err)
				never.Release()
			}
			c := testenv.Must(a.DLPackWith(ExportOptions{Device: on(dlpack.CPU), Copy: CopyAlways}))(t)
			require.NotEqual(t, addressOf(a), uintptr(c.Data()))
			require.NotZero(t, c.Flags()&dlpack.IsCopied)
			c.Release()

			own1 := testenv.Must(a.DLPackWith(ExportOptions{Device: on(dlpack.OneAPI(0))}))(t)
			require.Equal(t, addressOf(a), uintptr(own1.Data()))
			require.Zero(t, own1.Flags())
			own1.Release()
			cp := testenv.Must(a.DLPackWith(ExportOptions{Copy: CopyAlways}))(t)
			require.Equal(t, dlpack.OneAPI(0), cp.Device())
			require.Equal(t, dlpack.IsCopied, cp.Flags())
			b := testenv.Held(FromDLPack(rt, cp))(t)
			require.Equal(t, k, b.Place().Kind())
			require.Equal(t, elements(t, a), elements(t, b))

			testenv.Failed(t, testenv.ErrorOf(a.DLPackWith(ExportOptions{Device: on(dlpack.OneAPI(99))})), ErrExchange, "CopyTo")
			require.ErrorContains(t, testenv.ErrorOf(a.DLPackWith(ExportOptions{Device: on(dlpack.Device{Type: dlpack.DeviceROCM})})), "kDLROCM")
		})
	}
	h := testenv.Held(Arange[int32](memmgr.Host(), 0, 1, 5))(t)
	require.ErrorIs(t, testenv.ErrorOf(h.DLPackWith(ExportOptions{Device: on(dlpack.OneAPI(0))})), ErrExchange)
	second := on(dlpack.Device{Type: dlpack.DeviceCPU, ID: 1}) // there is one CPU, as for NumPy and for Python's __dlpack__
	require.ErrorIs(t, testenv.ErrorOf(h.DLPackWith(ExportOptions{Device: second})), ErrExchange)
	x := testenv.Must(h.DLPackWith(ExportOptions{Device: on(dlpack.OneAPI(0)), CopyTo: testsycl.USM(t, q, syclobj.USMShared)}))(t)
	require.Equal(t, dlpack.OneAPI(0), x.Device())
	require.Equal(t, "[0 1 2 3 4]", testenv.Held(FromDLPack(rt, x))(t).String())
}

// TestDLPackCopyToElsewhere: if CopyTo allocates memory of another device than the requested one, the export
// is refused.
func TestDLPackCopyToElsewhere(t *testing.T) {
	rt, q := testsycl.Need(t)
	for _, a := range []*Array{
		testenv.Held(Arange[int32](memmgr.Host(), 0, 1, 5))(t),
		testenv.Held(Arange[int32](testsycl.USM(t, q, syclobj.USMDevice), 0, 1, 5))(t),
	} {
		for _, o := range []ExportOptions{
			{Device: on(dlpack.CPU), CopyTo: testsycl.USM(t, q, syclobj.USMDevice)},
			{Device: on(dlpack.OneAPI(0)), CopyTo: memmgr.Host()},
			{Device: on(dlpack.OneAPI(99)), CopyTo: testsycl.USM(t, q, syclobj.USMShared)},
		} {
			o.Copy = CopyAlways
			x, err := a.DLPackWith(o)
			if !errors.Is(err, ErrExchange) {
				t.Errorf("requested %v, copied to %v: %v in %v", *o.Device, o.CopyTo.Place(), err, x.Device())
				x.Release()
			}
		}
		x := testenv.Must(a.DLPackWith(ExportOptions{Device: on(dlpack.CPU), Copy: CopyAlways, CopyTo: testsycl.USM(t, q, syclobj.USMShared)}))(t)
		require.Equal(t, dlpack.CPU, x.Device())
		require.Equal(t, "[0 1 2 3 4]", testenv.Held(FromDLPack(rt, x))(t).String())
	}
}

func TestDLPackOtherContext(t *testing.T) {
	rt, q := testsycl.Need(t)
	oq := otherQueue(t, rt, q)
	a := testenv.Held(Arange[int32](testsycl.USM(t, oq, syclobj.USMShared), 0, 1, 4))(t)
	testenv.Failed(t, testenv.ErrorOf(a.DLPack()), syclobj.ErrNotDefault, "CopyAlways")
	inside := testenv.Held(Zeros(testsycl.USM(t, q, syclobj.USMShared), Int32, nil))(t)
	require.Equal(t, testenv.Must(inside.DLDevice())(t), testenv.Must(a.DLDevice())(t), "so that a consumer can request a copy")
	x := testenv.Must(a.DLPackWith(ExportOptions{Copy: CopyAlways}))(t)
	b := testenv.Held(FromDLPack(rt, x))(t)
	require.True(t, b.Place().IsDefaultContext())
	require.Equal(t, "[0 1 2 3]", b.String())
	cpu := testenv.Must(a.DLPackWith(ExportOptions{Device: on(dlpack.CPU)}))(t)
	require.Equal(t, addressOf(a), uintptr(cpu.Data()), "kDLCPU exists for memory of every context")
	cpu.Release()
	d := testenv.Held(a.Copy(testsycl.USM(t, q, syclobj.USMDevice)))(t)
	require.Equal(t, "[0 1 2 3]", d.String())
	require.Equal(t, "[0 1 2 3]", testenv.Held(d.Copy(testsycl.USM(t, oq, syclobj.USMDevice)))(t).String())
}

// foreign exports host memory like another library.
func foreign(t *testing.T, v dlpack.View, flags dlpack.Flags, versioned bool) (dlpack.Tensor, *atomic.Int32) {
	t.Helper()
	released := new(atomic.Int32)
	buf := testenv.Must(memmgr.FromForeign(nil, 0, memmgr.ForeignOptions{Release: func() { released.Add(1) }}))(t)
	x := testenv.Must(dlpack.Export(&v, flags, versioned, dlpack.Owner{Drop: owner.DropFunc(), Ctx: cells.Of(buf).Pointer()}))(t)
	return x, released
}

func TestFromDLPackErrors(t *testing.T) {
	rt, q := testsycl.Need(t)
	data := make([]float32, 8)
	var pin runtime.Pinner
	pin.Pin(&data[0])
	defer pin.Unpin()
	p := unsafe.Pointer(&data[0])
	a := testenv.Held(Arange[float32](testsycl.USM(t, q, syclobj.USMShared), 0, 1, 8))(t)
	oq := otherQueue(t, rt, q)
	other := testenv.Held(Arange[float32](testsycl.USM(t, oq, syclobj.USMShared), 0, 1, 8))(t)
	view := func(p unsafe.Pointer, d dlpack.Device) dlpack.View {
		return dlpack.View{Data: p, Device: d, DataType: Float32, Shape: []int64{8}}
	}
	for _, c := range []struct {
		name string
		view dlpack.View
		take func(*syclobj.Runtime, dlpack.Tensor) (*Array, error)
		want string
	}{
		{"device type", view(p, dlpack.Device{Type: dlpack.DeviceCUDA}), FromDLPack, "kDLCUDA"},
		{"index out of range", view(a.Pointer(), dlpack.OneAPI(99)), FromDLPack, "DLPack device index"},
		{"negative index", view(a.Pointer(), dlpack.OneAPI(-1)), FromDLPack, "DLPack device index"},
		{"no USM", view(p, dlpack.OneAPI(0)), FromDLPack, "not unified shared memory"},
		{"other context", view(other.Pointer(), dlpack.OneAPI(0)), FromDLPack, "not unified shared memory"},
		{"overrun", view(unsafe.Add(a.Pointer(), 4), dlpack.OneAPI(0)), FromDLPack, "beyond"},
		{"xpu", view(a.Pointer(), dlpack.OneAPI(0)), FromXPU, "device memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.view.Device.ID < 0 {
				require.ErrorIs(t, testenv.ErrorOf(dlpack.Export(&c.view, 0, true, dlpack.Owner{})), dlpack.ErrDevice) // dlpack refuses such a tensor before
				return
			}
			if c.name == "other context" && !testsycl.SeparateContexts(t, rt, q) {
				t.Skipf("the contexts of %s share its memory", q.Device())
			}
			if c.name == "overrun" {
				needExactEnd(t, rt, q, a)
			}
			x, released := foreign(t, c.view, 0, true)
			testenv.Failed(t, testenv.ErrorOf(c.take(rt, x)), ErrExchange, c.want)
			require.True(t, x.Valid(), "a failed import leaves the tensor")
			require.Zero(t, released.Load())
			x.Release()
			eventually(t, func() bool { return released.Load() == 1 })
		})
	}
}

func TestConversions(t *testing.T) {
	rt, q := testsycl.Need(t)
	for _, k := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		a := testenv.Held(Arange[float32](testsycl.USM(t, q, k), 0, 1, 24))(t)
		for name, v := range views(t, a) {
			for _, ro := range []bool{false, true} {
				t.Run(k.String()+" "+name, func(t *testing.T) {
					v := v
					if ro {
						v = v.AsReadOnly()
					}
					var released atomic.Int32
					d := testenv.Must(v.USMInterface())(t)
					x := testenv.Must(USMInterfaceToDLPack(rt, &d, func() { released.Add(1) }, ExportOptions{}))(t)
					requireTensor(t, x, v)
					e, owner, err := DLPackToUSMInterface(rt, x)
					require.NoError(t, err)
					require.Equal(t, d.Data, e.Data)
					require.Equal(t, d.Shape, e.Shape)
					require.Equal(t, d.Strides, e.Strides)
					require.Equal(t, d.ReadOnly, e.ReadOnly)
					require.True(t, owner.Buffer().Exported())
					require.Zero(t, released.Load())
					owner.Release()
					eventually(t, func() bool { return released.Load() == 1 })
				})
			}
		}
	}
	// If one protocol cannot describe the memory, the object of the other is unchanged.
	b := testenv.Held(Zeros(testsycl.USM(t, q, syclobj.USMShared), Bfloat16, []int{2}))(t)
	x := testenv.Must(b.DLPack())(t)
	_, _, err := DLPackToUSMInterface(rt, x)
	require.ErrorIs(t, err, ErrType)
	require.True(t, x.Valid())
	x.Release()
	h := testenv.Held(Zeros(memmgr.Host(), Float32, []int{2}))(t)
	x = testenv.Must(h.DLPack())(t)
	_, _, err = DLPackToUSMInterface(rt, x)
	require.ErrorIs(t, err, ErrNotUSM)
	x.Release()
	var released atomic.Int32
	f := testenv.Held(Zeros(testsycl.USM(t, q, syclobj.USMShared), Float32, []int{2}))(t)
	d := testenv.Must(f.USMInterface())(t)
	require.ErrorIs(t, testenv.ErrorOf(USMInterfaceToDLPack(rt, &d, func() { released.Add(1) }, ExportOptions{XPU: true})), ErrExchange)
	require.Zero(t, released.Load())
}

func TestDLPackTypes(t *testing.T) {
	needDLPack(t)
	rt := testsycl.Runtime(t)
	for _, dt := range dlpack.DataTypes() {
		for _, padded := range []bool{false, true} {
			var opts []Option
			if padded {
				opts = append(opts, Padded())
			}
			a := testenv.Held(Zeros(memmgr.Host(), dt, []int{3, 8}, opts...))(t)
			for i := range 3 {
				require.NoError(t, a.SetAt(0, i, 1))
			}
			x, err := a.DLPack()
			require.NoError(t, err, dt)
			require.Equal(t, padded && dt.IsSubByte(), x.Flags()&dlpack.SubBytePadded != 0)
			b := testenv.Held(FromDLPack(rt, x))(t)
			require.Equal(t, dt, b.DataType())
			require.Equal(t, fmt.Sprint(elements(t, a)), fmt.Sprint(elements(t, b))) // float8_e8m0fnu has no 0 but NaN
			require.Equal(t, a.Padded(), b.Padded())
		}
	}
	p := testenv.Held(Zeros(memmgr.Host(), dlpack.Float4E2M1FN, []int{8}))(t)
	v := testenv.Must(p.Index(IndexFrom(1)))(t)
	testenv.Failed(t, testenv.ErrorOf(v.DLPack()), ErrExchange, "within a byte")
}
