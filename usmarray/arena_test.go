package usmarray_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
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
	zeros, err := usmarray.Zeros(m, usmarray.Float32, []int{10})
	require.NoError(t, err)
	filled, err := usmarray.FromSlice(m, []int32{1, 2, 3}, nil)
	require.NoError(t, err)
	filled.Release() // before the end; the arena does not release it again
	kept, err := usmarray.FromSlice(m, []float64{1, 2}, nil)
	require.NoError(t, err)
	require.True(t, a.Keep(kept))
	shared, err := usmarray.FromSlice(m, []uint8{7}, nil, usmarray.WithTag("shared"))
	require.NoError(t, err)
	held := shared.Retain()
	exported, err := usmarray.FromSlice(m, []uint8{8, 9}, nil, usmarray.WithTag("exported"))
	require.NoError(t, err)
	tensor, err := exported.DLPack()
	require.NoError(t, err)

	left := a.End()
	require.Equal(t, []memmgr.Holder{{Tenant: "request", Tag: "exported", Bytes: 2, Count: 1}, {Tenant: "request", Tag: "shared", Bytes: 1, Count: 1}}, left.ByTag)
	for _, gone := range []*usmarray.Array{zeros, filled, shared, exported} {
		require.False(t, gone.Valid())
		gone.Release()
	}
	require.Panics(t, func() { zeros.Shape(); zeros.Buffer().Data() })
	got, err := usmarray.Slice[float64](kept)
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2}, got)
	kept.Release()
	bytes, err := usmarray.Slice[uint8](held)
	require.NoError(t, err)
	require.Equal(t, []uint8{7}, bytes)
	held.Release()
	require.Equal(t, 1, a.Left().Blocks)
	tensor.Release()
	require.Zero(t, a.Left())

	_, err = usmarray.New(m, usmarray.Float32, []int{1})
	require.ErrorIs(t, err, memmgr.ErrClosed)
}

func TestWaitingArraysEndWithTheirArena(t *testing.T) {
	a := arena.New(arena.Options{})
	x, err := usmarray.Zeros(memmgr.Waiting(context.Background(), a.Over(memmgr.Host())), usmarray.Float32, []int{3})
	require.NoError(t, err)
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
	x, err := usmarray.FromSlice(memmgr.Host(), []int64{4, 5}, nil)
	require.NoError(t, err)
	defer x.Release()
	cpu := dlpack.CPU
	tensor, err := x.DLPackWith(usmarray.ExportOptions{Copy: usmarray.CopyAlways, Device: &cpu, CopyTo: a.Over(memmgr.Host())})
	require.NoError(t, err)
	require.Equal(t, 1, a.End().Blocks)
	rt, err := syclobj.Open(syclobj.HostOnly())
	require.NoError(t, err)
	defer func() { require.NoError(t, rt.Close()) }()
	back, err := usmarray.FromDLPack(rt, tensor)
	require.NoError(t, err)
	got, err := usmarray.Slice[int64](back)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 5}, got)
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
	x, err := usmarray.FromSlice(memmgr.Host(), []int64{4, 5}, nil)
	require.NoError(t, err)
	defer x.Release()
	for _, o := range []usmarray.ExportOptions{
		{Copy: usmarray.CopyAlways, CopyTo: eager{memmgr.Host()}},
		{Copy: usmarray.CopyAlways, CopyTo: eager{memmgr.Host()}, Device: &dlpack.Device{Type: dlpack.DeviceCPU}},
	} {
		tensor, err := x.DLPackWith(o)
		require.NoError(t, err)
		tensor.Release()
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
