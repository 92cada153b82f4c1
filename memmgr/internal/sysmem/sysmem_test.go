package sysmem_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
)

func TestMapAlignsAndZeroes(t *testing.T) {
	for _, align := range []uintptr{256, sysmem.PageSize, 64 * sysmem.PageSize} {
		size := 3 * sysmem.PageSize
		at, err := sysmem.Map(size, align)
		require.NoError(t, err)
		require.Zero(t, at%align)
		b := unsafe.Slice((*byte)(owner.Pointer(at)), size)
		require.Equal(t, make([]byte, size), b)
		b[0], b[size-1] = 1, 1
		require.NoError(t, sysmem.Unmap(at, size))
	}
}

func TestDiscardReturnsPages(t *testing.T) {
	size := 8 * sysmem.PageSize
	at, err := sysmem.Map(size, sysmem.PageSize)
	require.NoError(t, err)
	defer func() { require.NoError(t, sysmem.Unmap(at, size)) }()
	b := unsafe.Slice((*byte)(owner.Pointer(at)), size)
	for i := range b {
		b[i] = 1
	}
	require.Equal(t, size, sysmem.Resident(at, size))
	if err := sysmem.Discard(at+sysmem.PageSize, 2*sysmem.PageSize); err != nil {
		t.Skip(err)
	}
	require.Equal(t, size-2*sysmem.PageSize, sysmem.Resident(at, size))
	require.EqualValues(t, 1, b[0])
	require.Zero(t, b[sysmem.PageSize])
}

func TestWholePages(t *testing.T) {
	page := sysmem.PageSize
	for _, c := range []struct{ address, size, from, bytes uintptr }{
		{page, 2 * page, page, 2 * page},
		{page + 1, 2 * page, 2 * page, page},
		{page + 1, page, 2 * page, 0},
		{page - 1, page + 2, page, page},
	} {
		from, bytes := sysmem.WholePages(c.address, c.size)
		require.Equal(t, c.bytes, bytes)
		if bytes != 0 {
			require.Equal(t, c.from, from)
		}
	}
}
