package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// newPool returns a pool that is closed at the end of the test.
func newPool(t testing.TB, upstream memmgr.Resource, options ...memmgr.PoolOption) *memmgr.Pool {
	p := memmgr.NewPool(upstream, options...)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func newHostPool(t testing.TB, options ...memmgr.PoolOption) *memmgr.Pool {
	return newPool(t, memmgr.Host(), options...)
}

func TestPoolOnHost(t *testing.T) {
	memtest.Run(t, func(t testing.TB) memmgr.Resource { return newHostPool(t) }, memtest.Options{Largest: 40 << 20, MaxAlign: 4 << 20})
}
