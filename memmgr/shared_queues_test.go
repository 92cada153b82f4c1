//go:build cgo && linux

package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestSharedQueuesAreBounded: memory that is shared on very many queues keeps some of them alive, and the
// work on the forgotten ones is pending work.
func TestSharedQueuesAreBounded(t *testing.T) {
	rt := openSYCL(t)
	def := rt.DefaultQueue()
	upstream := testsycl.USM(t, def, syclobj.USMShared)
	pool := newPool(t, upstream)
	b := mustNew(t, pool, 1<<20)
	before := syclobj.LiveObjects().Queues
	for i := range 200 {
		q := testenv.Must(rt.NewQueue(nil, def.Device(), syclobj.OutOfOrder))(t)
		require.NoError(t, b.ExportOn(q))
		// Unreported work: the last queue writes last, because ExportOn orders it.
		ev := testenv.Must(q.Memset(b.Data(), byte(i), 1<<20))(t)
		require.NoError(t, ev.Close())
		require.NoError(t, q.Close())
	}
	require.LessOrEqual(t, syclobj.LiveObjects().Queues-before, int64(40))
	data := testenv.Must(b.Bytes())(t)
	require.Equal(t, byte(199), data[0])
	require.Equal(t, byte(199), data[len(data)-1])
	b.Release()
	memmgr.Flush()
	require.Equal(t, before, syclobj.LiveObjects().Queues)
}
