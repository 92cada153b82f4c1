//go:build usmb_checks

package memmgr

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
)

// A block that is freed twice is found at the second free, whichever way both went.
func TestChecksFindASecondFree(t *testing.T) {
	p := NewPool(Host())
	defer func() { require.NoError(t, p.Close()) }()
	b := testenv.Must(New(p, Request{Size: 4096}))(t)
	c := b.ref.Cell()
	require.Panics(t, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.heap.Cache(c, int(c.Private))
		p.heap.Cache(c, int(c.Private))
	})
}

func TestChecksRejectLocksOutOfOrder(t *testing.T) {
	p, q := NewPool(Host()), NewPool(Host())
	defer func() { require.NoError(t, p.Close()) }()
	defer func() { require.NoError(t, q.Close()) }()
	require.NotPanics(t, func() {
		p.pending.Sweeping.Lock()
		p.mu.Lock()
		order.HoldQueues()()
		p.mu.Unlock()
		p.pending.Sweeping.Unlock()
	})
	require.True(t, p.mu.TryLock())
	require.Panics(t, q.mu.Lock, "no lock spans two pools")
	require.Panics(t, p.pending.Sweeping.Lock)
	require.Panics(t, func() { _ = p.beginGrowth(nil) }) //nolint:staticcheck // as for a request without a context
	p.mu.Unlock()
	q.mu.Lock()
	q.mu.Unlock() //nolint:staticcheck // only the order counts
}
