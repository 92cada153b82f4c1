package usmarray

import (
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

func TestFromPinnedSlice(t *testing.T) {
	data := []float64{1, 2, 3, 4, 5, 6}
	a := testenv.Must(FromPinnedSlice(data, []int{2, 3}))(t)
	require.Equal(t, unsafe.Pointer(&data[0]), a.Pointer())
	require.Equal(t, []int{3, 1}, a.Strides())
	require.Equal(t, Float64, a.dtype)
	require.True(t, a.Place().IsHost())
	data[5] = 60
	require.Equal(t, 60.0, testenv.Must(a.At(1, 2))(t))
	require.NoError(t, a.SetAt(-1, 0, 0))
	require.Equal(t, -1.0, data[0])
	a.Release()

	require.Zero(t, testenv.Held(FromPinnedSlice(data[:1], []int{}))(t).NDim(), "a scalar")
	require.Zero(t, testenv.Held(FromPinnedSlice([]int8{}, []int{0, 4}))(t).Size())
	require.Equal(t, []int{0}, testenv.Held(FromPinnedSlice[int8](nil, nil))(t).Shape())
	require.ErrorIs(t, testenv.Held(FromPinnedSlice(data, nil, ReadOnly()))(t).SetAt(0, 0), ErrReadOnly)

	for _, shape := range [][]int{{5}, {2, 2}, {7}, {0}, {-6}, {-2, -3}, {math.MaxInt, 4}, {}} {
		testenv.Failed(t, testenv.ErrorOf(FromPinnedSlice(data, shape)), ErrLayout, "usmarray: FromPinnedSlice: ")
	}
	require.ErrorIs(t, testenv.ErrorOf(FromPinnedSlice([]int8{}, []int{3})), ErrLayout)
	require.ErrorIs(t, testenv.ErrorOf(FromPinnedSlice([]int8{}, []int{0, -1})), ErrLayout)
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
	a = testenv.Must(FromPinnedSlice(data[:], nil))(t)
	return a, collected
}

func requireCollected(t *testing.T, collected *atomic.Bool) {
	t.Helper()
	eventually(t, func() bool { runtime.GC(); return collected.Load() })
}

// TestFromPinnedSlicePin: the pin ends with the last reference, and not before.
func TestFromPinnedSlicePin(t *testing.T) {
	a, collected := pinCollectable(t)
	view := testenv.Must(a.Reshape(64, 64))(t)
	view = view.Retain()
	a.Release()
	runtime.GC()
	runtime.GC()
	require.Equal(t, float32(7), testenv.Must(view.At(0, 7))(t))
	require.False(t, collected.Load(), "a retained view")
	view.Release()
	requireCollected(t, collected)
}

// TestFromPinnedSliceConsumer: the deleter of a DLPack consumer, which never enters Go, ends the pin too.
func TestFromPinnedSliceConsumer(t *testing.T) {
	needDLPack(t)
	a, collected := pinCollectable(t)
	x := testenv.Must(a.DLPack())(t)
	a.Release()
	managed, versioned := x.Detach()
	runtime.GC()
	runtime.GC()
	require.False(t, collected.Load(), "the consumer's")
	x = testenv.Must(dlpack.Import(managed, versioned))(t)
	require.Equal(t, float32(7), testenv.Must(dlpack.Slice[float32](x))(t)[7])
	dlpack.Delete(x.Detach())
	requireCollected(t, collected)
}
