package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// TestCachesInFrontGiveBack: a cache in front of a pool gives its blocks back before the pool
// reports counters, is trimmed or closed, or refuses a request.
func TestCachesInFrontGiveBack(t *testing.T) {
	p := newPool(t, memmgr.NewLimit(memmgr.Host(), 8<<20))
	var kept []memmgr.Buffer
	keep := func(size uintptr) {
		b := mustNew(t, p, size)
		kept = append(kept, b)
	}
	remove := memmgr.AddCache(func() {
		releaseAll(kept)
		kept = nil
	})
	keep(1 << 20)
	require.Zero(t, p.Stats().AllocatedBytes.Current)
	keep(1 << 20)
	for _, segment := range p.Snapshot().Segments {
		for _, block := range segment.Blocks {
			require.NotEqual(t, memmgr.BlockActive, block.State)
		}
	}
	keep(1 << 20)
	require.NotZero(t, p.Trim(0))
	require.Zero(t, p.Stats().ReservedBytes.Current)
	keep(6 << 20)
	b, err := memmgr.New(p, memmgr.Request{Size: 7 << 20})
	require.NoError(t, err, "the cache gives way")
	b.Release()
	remove()
	remove()
	keep(1 << 20)
	require.NotZero(t, p.Stats().AllocatedBytes.Current)
	releaseAll(kept)
	kept = nil
	memmgr.AddCache(func() {})()
}
