package memmgr

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// funcResource is a resource whose values cannot be compared.
type funcResource struct {
	noResource
	free func(Block)
}

func (r funcResource) Allocate(q Request) (Block, error) {
	mem := make([]byte, q.Size)
	return Block{Address: uintptr(unsafe.Pointer(&mem[0])), Size: q.Size, Requested: q.Size, Cookie: 7}, nil
}

func (r funcResource) Free(b Block) { r.free(b) }

// Memory of a resource that is no key of a map goes back to it like any other.
func TestResourceThatCannotBeCompared(t *testing.T) {
	freed, before := 0, Origins()
	r := funcResource{free: func(b Block) {
		freed++
		require.EqualValues(t, 7, b.Cookie)
	}}
	a, err := New(r, Request{Size: 16})
	require.NoError(t, err)
	b, err := New(r, Request{Size: 16})
	require.NoError(t, err)
	require.IsType(t, r, a.Resource())
	require.NoError(t, Close(r))
	a.Release()
	require.Equal(t, 1, freed)
	b.Release()
	require.Equal(t, 2, freed)
	require.Equal(t, before, Origins())
	require.NoError(t, Close(r))
}
