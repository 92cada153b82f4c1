package memmgr_test

import (
	"io"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

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

func TestHostResource(t *testing.T) {
	memtest.Run(t, func(testing.TB) memmgr.Resource { return memmgr.Host() }, memtest.Options{})
}

func TestHostMemoryIsZeroed(t *testing.T) {
	b, err := memmgr.New(memmgr.Host(), memmgr.Request{Size: 10000})
	require.NoError(t, err)
	defer b.Release()
	raw, err := b.Bytes()
	require.NoError(t, err)
	require.Equal(t, make([]byte, len(raw)), raw)
}

func TestUseAfterReleaseReportsThePlaceOfAllocation(t *testing.T) {
	b, err := memmgr.New(memmgr.Host(), memmgr.Request{Size: 10})
	require.NoError(t, err)
	b.Release()
	defer func() {
		e, ok := recover().(*memmgr.UseError)
		require.True(t, ok)
		require.Contains(t, e.Error(), "TestUseAfterReleaseReportsThePlaceOfAllocation")
		require.Contains(t, e.Error(), "Buffer.Data")
	}()
	b.Data()
}

func TestTypedCopies(t *testing.T) {
	b, err := memmgr.New(memmgr.Host(), memmgr.Request{Size: 64})
	require.NoError(t, err)
	defer b.Release()
	in := []float32{1, 2, 3, -4.5}
	require.NoError(t, memmgr.CopyIn(b, 3, in))
	out := make([]float32, 4)
	require.NoError(t, memmgr.CopyOut(b, 3, out))
	require.Equal(t, in, out)
	other, err := memmgr.New(memmgr.Host(), memmgr.Request{Size: 64})
	require.NoError(t, err)
	defer other.Release()
	require.NoError(t, memmgr.CopyBuffer(other, 0, b, 12, 16))
	require.NoError(t, memmgr.CopyOut(other, 0, out))
	require.Equal(t, in, out)
	b.SetReadOnly()
	require.ErrorIs(t, memmgr.CopyIn(b, 0, in), memmgr.ErrReadOnly)
	require.ErrorIs(t, memmgr.CopyBuffer(other, 0, b, 1<<40, 1), memmgr.ErrRange)
}

func TestForeignMemoryIsReleasedOnce(t *testing.T) {
	memory := make([]int32, 4)
	n := 0
	b, err := memmgr.FromForeign(unsafe.Pointer(&memory[0]), 16, memmgr.ForeignOptions{Release: func() { n++ }})
	require.NoError(t, err)
	require.Same(t, syclobj.HostPlace(), b.Place())
	require.Nil(t, b.Resource())
	require.NoError(t, memmgr.CopyIn(b, 1, []int32{7}))
	require.EqualValues(t, 7, memory[1])
	b.Retain()
	b.Release()
	require.Zero(t, n)
	b.Release()
	require.Equal(t, 1, n)
	_, err = memmgr.FromForeign(nil, 4, memmgr.ForeignOptions{})
	require.ErrorIs(t, err, memmgr.ErrRequest)
}

// A record that is reused contains nothing of its former use.
func TestRecordsOfForeignMemoryAreReused(t *testing.T) {
	memory := make([]int32, 4)
	p := unsafe.Pointer(&memory[0])
	var calls []int
	for n := range 3 {
		b, err := memmgr.FromForeign(p, 16, memmgr.ForeignOptions{Release: func() { calls = append(calls, n) }})
		require.NoError(t, err)
		b.Retain().Release()
		require.Len(t, calls, n)
		b.Release()
		plain, err := memmgr.FromForeign(p, 16, memmgr.ForeignOptions{})
		require.NoError(t, err)
		plain.Release()
		require.Len(t, calls, n+1)
	}
	require.Equal(t, []int{0, 1, 2}, calls)
	_, err := memmgr.FromForeign(nil, 4, memmgr.ForeignOptions{Release: func() { calls = nil }})
	require.ErrorIs(t, err, memmgr.ErrRequest)
	require.Len(t, calls, 3, "on error nothing was taken")
}
