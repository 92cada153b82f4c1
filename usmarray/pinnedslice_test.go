package usmarray

import (
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
)

func TestFromPinnedSlice(t *testing.T) {
	data := []float64{1, 2, 3, 4, 5, 6}
	a, err := FromPinnedSlice(data, []int{2, 3})
	require.NoError(t, err)
	require.Equal(t, unsafe.Pointer(&data[0]), a.Pointer())
	require.Equal(t, []int{3, 1}, a.Strides())
	require.Equal(t, Float64, a.dtype)
	require.True(t, a.Place().IsHost())
	data[5] = 60
	require.Equal(t, 60.0, must[any](t)(a.At(1, 2)))
	require.NoError(t, a.SetAt(-1, 0, 0))
	require.Equal(t, -1.0, data[0])
	a.Release()

	scalar, err := FromPinnedSlice(data[:1], []int{})
	require.NoError(t, err)
	require.Zero(t, scalar.NDim())
	scalar.Release()
	empty, err := FromPinnedSlice([]int8{}, []int{0, 4})
	require.NoError(t, err)
	require.Zero(t, empty.Size())
	empty.Release()
	none, err := FromPinnedSlice[int8](nil, nil)
	require.NoError(t, err)
	require.Equal(t, []int{0}, none.Shape())
	none.Release()
	padded, err := FromPinnedSlice([]dlpack.F4E2M1FN{1, 2}, nil)
	require.NoError(t, err)
	require.True(t, padded.Padded())
	padded.Release()
	readOnly, err := FromPinnedSlice(data, nil, ReadOnly())
	require.NoError(t, err)
	require.ErrorIs(t, readOnly.SetAt(0, 0), ErrReadOnly)
	readOnly.Release()

	for _, shape := range [][]int{{5}, {2, 2}, {7}, {0}, {-6}, {-2, -3}, {math.MaxInt, 4}, {}} {
		_, err = FromPinnedSlice(data, shape)
		require.ErrorIs(t, err, ErrLayout, "%v", shape)
		require.ErrorContains(t, err, "usmarray: FromPinnedSlice: ")
	}
	_, err = FromPinnedSlice([]int8{}, []int{3})
	require.ErrorIs(t, err, ErrLayout)
	_, err = FromPinnedSlice([]int8{}, []int{0, -1})
	require.ErrorIs(t, err, ErrLayout)
}

// pinCollectable makes an array of an otherwise unreachable slice; collected reports whether its
// memory was collected.
//
//go:noinline
func pinCollectable(t *testing.T) (a *Array, collected *atomic.Bool) {
	t.Helper()
	collected = new(atomic.Bool)
	data := new([1 << 12]float32)
	data[7] = 7
	runtime.SetFinalizer(data, func(*[1 << 12]float32) { collected.Store(true) })
	a, err := FromPinnedSlice(data[:], nil)
	require.NoError(t, err)
	return a, collected
}

func requireCollected(t *testing.T, collected *atomic.Bool) {
	t.Helper()
	eventually(t, func() bool { memmgr.Flush(); runtime.GC(); return collected.Load() })
}

// TestFromPinnedSlicePin: the pin ends with the last reference, and not before.
func TestFromPinnedSlicePin(t *testing.T) {
	a, collected := pinCollectable(t)
	view, err := a.Reshape(64, 64)
	require.NoError(t, err)
	view = view.Retain()
	a.Release()
	runtime.GC()
	runtime.GC()
	require.Equal(t, float32(7), must[any](t)(view.At(0, 7)))
	require.False(t, collected.Load(), "a retained view")
	view.Release()
	requireCollected(t, collected)
}

// TestFromPinnedSliceConsumer: the deleter of a DLPack consumer, which never enters Go, ends the pin too.
func TestFromPinnedSliceConsumer(t *testing.T) {
	if !dlpack.Supported() {
		t.Skip("tensors need cgo")
	}
	a, collected := pinCollectable(t)
	x, err := a.DLPack()
	require.NoError(t, err)
	a.Release()
	managed, versioned := x.Detach()
	runtime.GC()
	runtime.GC()
	require.False(t, collected.Load(), "the consumer's")
	x, err = dlpack.Import(managed, versioned)
	require.NoError(t, err)
	s, err := dlpack.Slice[float32](x)
	require.NoError(t, err)
	require.Equal(t, float32(7), s[7])
	dlpack.Delete(x.Detach())
	requireCollected(t, collected)
}
