package usmarray_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestArraysEndWithTheirArena: the end of an arena releases the arrays of its memory, except those that were
// retained or exported.
func TestArraysEndWithTheirArena(t *testing.T) {
	if !dlpack.Supported() {
		t.Skip("tensors need cgo")
	}
	a := arena.New(arena.Options{Name: "request"})
	m := a.Over(memmgr.Host())
	zeros := testenv.Must(usmarray.Zeros(m, usmarray.Float32, []int{10}))(t)
	filled := testenv.Must(usmarray.FromSlice(m, []int32{1, 2, 3}, nil))(t)
	filled.Release() // before the end; the arena does not release it again
	kept := testenv.Must(usmarray.FromSlice(m, []float64{1, 2}, nil))(t)
	require.True(t, a.Keep(kept))
	shared := testenv.Must(usmarray.FromSlice(m, []uint8{7}, nil, usmarray.WithTag("shared")))(t)
	held := shared.Retain()
	exported := testenv.Must(usmarray.FromSlice(m, []uint8{8, 9}, nil, usmarray.WithTag("exported")))(t)
	tensor := testenv.Must(exported.DLPack())(t)

	left := a.End()
	require.Equal(t, []memmgr.Holder{{Tenant: "request", Tag: "exported", Bytes: 2, Count: 1}, {Tenant: "request", Tag: "shared", Bytes: 1, Count: 1}}, left.ByTag)
	for _, gone := range []*usmarray.Array{zeros, filled, shared, exported} {
		require.False(t, gone.Valid())
		gone.Release()
	}
	require.Panics(t, func() { zeros.Shape(); zeros.Buffer().Data() })
	require.Equal(t, []float64{1, 2}, testenv.Must(usmarray.Slice[float64](kept))(t))
	kept.Release()
	require.Equal(t, []uint8{7}, testenv.Must(usmarray.Slice[uint8](held))(t))
	held.Release()
	require.Equal(t, 1, a.Left().Blocks)
	tensor.Release()
	require.Zero(t, a.Left())

	require.ErrorIs(t, testenv.ErrorOf(usmarray.New(m, usmarray.Float32, []int{1})), memmgr.ErrClosed)
}

func TestWaitingArraysEndWithTheirArena(t *testing.T) {
	a := arena.New(arena.Options{})
	x := testenv.Must(usmarray.Zeros(memmgr.Waiting(context.Background(), a.Over(memmgr.Host())), usmarray.Float32, []int{3}))(t)
	require.Zero(t, a.End())
	require.False(t, x.Valid())
}

// TestExportedCopiesOutliveTheirArena: a copy that an export makes in an arena's memory belongs to the
// tensor; the arena does not release it.
func TestExportedCopiesOutliveTheirArena(t *testing.T) {
	if !dlpack.Supported() {
		t.Skip("tensors need cgo")
	}
	a := arena.New(arena.Options{})
	x := testenv.Held(usmarray.FromSlice(memmgr.Host(), []int64{4, 5}, nil))(t)
	cpu := dlpack.CPU
	tensor := testenv.Must(x.DLPackWith(usmarray.ExportOptions{Copy: usmarray.CopyAlways, Device: &cpu, CopyTo: a.Over(memmgr.Host())}))(t)
	require.Equal(t, 1, a.End().Blocks)
	rt := testenv.Opened(syclobj.Open(syclobj.HostOnly()))(t)
	back := testenv.Must(usmarray.FromDLPack(rt, tensor))(t)
	require.Equal(t, []int64{4, 5}, testenv.Must(usmarray.Slice[int64](back))(t))
	back.Release()
	require.Zero(t, a.Left())
}

// eager is a resource that releases what it adopts immediately, as an arena that ends at that moment does.
type eager struct{ memmgr.Resource }

func (eager) Adopt(x interface {
	Release()
	Valid() bool
}) error {
	x.Release()
	return nil
}

// TestExportedCopiesAreNotAdopted: an export uses the copy that it makes until the tensor exists.
func TestExportedCopiesAreNotAdopted(t *testing.T) {
	if !dlpack.Supported() {
		t.Skip("tensors need cgo")
	}
	x := testenv.Held(usmarray.FromSlice(memmgr.Host(), []int64{4, 5}, nil))(t)
	for _, o := range []usmarray.ExportOptions{
		{Copy: usmarray.CopyAlways, CopyTo: eager{memmgr.Host()}},
		{Copy: usmarray.CopyAlways, CopyTo: eager{memmgr.Host()}, Device: &dlpack.Device{Type: dlpack.DeviceCPU}},
	} {
		testenv.Must(x.DLPackWith(o))(t).Release()
		require.Equal(t, 1, x.Buffer().Count())
	}
}

// TestEndBesideReleases: other goroutines release views of an array while the arena ends.
func TestEndBesideReleases(t *testing.T) {
	for range 300 {
		a := arena.New(arena.Options{})
		m := a.Over(memmgr.Host())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				x, err := usmarray.New(m, usmarray.Uint8, []int{100})
				if err != nil {
					return
				}
				y := tryRetain(x)
				x.Release()
				if y != nil {
					y.Release()
				}
			}
		}()
		a.End()
		<-done
		require.Zero(t, a.Left())
	}
}

// tryRetain is Retain of an array that its arena may have released.
func tryRetain(x *usmarray.Array) (y *usmarray.Array) {
	defer func() { _ = recover() }()
	return x.Retain()
}
