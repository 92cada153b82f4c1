package memmgr_test

import (
	"io"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

// usmResource has the methods of the resource of memmgr.USM that the tests use.
type usmResource interface {
	memmgr.Resource
	io.Closer
	InUse() (blocks, bytes int64)
	DeviceTotal() uint64
}

func TestMain(m *testing.M) { memtest.Main(m) }

func TestTypedCopies(t *testing.T) {
	b := testenv.Held(memmgr.New(memmgr.Host(), memmgr.Request{Size: 64}))(t)
	in := []float32{1, 2, 3, -4.5}
	require.NoError(t, memmgr.CopyIn(b, 3, in))
	out := make([]float32, 4)
	require.NoError(t, memmgr.CopyOut(b, 3, out))
	require.Equal(t, in, out)
	other := testenv.Held(memmgr.New(memmgr.Host(), memmgr.Request{Size: 64}))(t)
	require.NoError(t, memmgr.CopyBuffer(other, 0, b, 12, 16))
	require.NoError(t, memmgr.CopyOut(other, 0, out))
	require.Equal(t, in, out)
	b.SetReadOnly()
	require.ErrorIs(t, memmgr.CopyIn(b, 0, in), memmgr.ErrReadOnly)
	require.ErrorIs(t, memmgr.CopyBuffer(other, 0, b, 1<<40, 1), memmgr.ErrRange)
}

// The record of the memory is used again, and contains nothing of its former use.
func TestForeignMemoryIsReleasedOnce(t *testing.T) {
	memory := make([]int32, 4)
	p := unsafe.Pointer(&memory[0])
	var calls []int
	for n := range 3 {
		b := testenv.Must(memmgr.FromForeign(p, 16, memmgr.ForeignOptions{Release: func() { calls = append(calls, n) }}))(t)
		require.Same(t, syclobj.HostPlace(), b.Place())
		require.Nil(t, b.Resource())
		require.NoError(t, memmgr.CopyIn(b, 1, []int32{int32(n)}))
		require.EqualValues(t, n, memory[1])
		b.Retain().Release()
		require.Len(t, calls, n)
		b.Release()
		testenv.Must(memmgr.FromForeign(p, 16, memmgr.ForeignOptions{}))(t).Release()
		require.Len(t, calls, n+1)
	}
	require.Equal(t, []int{0, 1, 2}, calls)
	require.ErrorIs(t, testenv.ErrorOf(memmgr.FromForeign(nil, 4, memmgr.ForeignOptions{Release: func() { calls = nil }})), memmgr.ErrRequest)
	require.Len(t, calls, 3, "on error nothing was taken")
}
