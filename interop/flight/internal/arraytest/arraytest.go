// Package arraytest creates arrays for tests.
package arraytest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// NewPool returns a pool of host memory, which is closed when the test ends.
func NewPool(t *testing.T, options ...memmgr.PoolOption) *memmgr.Pool {
	t.Helper()
	p := memmgr.NewPool(memmgr.Host(), options...)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// Arange returns a float32 array of 0, 1, 2, ...; the caller releases it.
func Arange(t *testing.T, r memmgr.Resource, shape ...int) *usmarray.Array {
	t.Helper()
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	a, err := usmarray.FromSlice(r, data, shape)
	require.NoError(t, err)
	return a
}
