//go:build cgo && linux

package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestSharedQueuesAreBounded: memory that is shared on very many queues keeps some of them alive, and the
// work on the forgotten ones is pending work.
func TestSharedQueuesAreBounded(t *testing.T) {
	rt := openSYCL(t)
	def := rt.DefaultQueue()
	upstream := memmgr.USM(def, syclobj.USMShared)
	defer func() { require.NoError(t, upstream.(usmResource).Close()) }()
	pool := memmgr.NewPool(upstream)
	defer func() { require.NoError(t, pool.Close()) }()
	b, err := memmgr.New(pool, memmgr.Request{Size: 1 << 20})
	require.NoError(t, err)
	before := syclobj.LiveObjects().Queues
	for i := range 200 {
		q, err := rt.NewQueue(nil, def.Device(), syclobj.OutOfOrder)
		require.NoError(t, err)
		require.NoError(t, b.ExportOn(q))
		// Unreported work: the last queue writes last, because ExportOn orders it.
		ev, err := q.Memset(b.Data(), byte(i), 1<<20)
		require.NoError(t, err)
		require.NoError(t, ev.Close())
		require.NoError(t, q.Close())
	}
	require.LessOrEqual(t, syclobj.LiveObjects().Queues-before, int64(40))
	data, err := b.Bytes()
	require.NoError(t, err)
	require.Equal(t, byte(199), data[0])
	require.Equal(t, byte(199), data[len(data)-1])
	b.Release()
	memmgr.Flush()
	require.Equal(t, before, syclobj.LiveObjects().Queues)
}
