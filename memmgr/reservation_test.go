package memmgr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// The pool reserves nothing for a waiter whose tenant has no room: it may be waiting for other waiters of
// this tenant. The tenant reserves room instead, for a short time.
func TestNothingIsReservedForAWaiterOfAFullTenant(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(64<<20))
	tenant := newTenant(t, p, "t", memmgr.TenantOptions{Hard: 32 << 20})
	held := mustNew(t, p, 40<<20)
	large := request(tenant, context.Background(), 28<<20)
	waits(t, p, 1)
	small := mustNew(t, tenant, 12<<20)
	for deadline := time.Now().Add(patience); !memmgr.TenantReserves(p); {
		require.True(t, time.Now().Before(deadline), "other requests of the tenant overtake it forever")
		for _, r := range []memmgr.Resource{p, tenant} {
			if b, err := memmgr.New(r, memmgr.Request{Size: 1 << 20}); err == nil {
				b.Release()
			} else {
				require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
			}
		}
		require.False(t, memmgr.PoolReserves(p), "a reservation that cannot help")
	}
	// A request without a context is not refused because of the reservation.
	mustNew(t, tenant, 4<<20).Release()
	held.Release()
	served(t, request(p, context.Background(), 40<<20)).Release()
	// The tenant's room goes to other requests when the reservation brings nothing.
	served(t, request(tenant, context.Background(), 16<<20)).Release()
	small.Release()
	served(t, large).Release()
}

// A release that completes a large free range serves the waiting request before Release returns, wherever
// the range is.
func TestReleaseServesALargeRequestAtOnce(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(32<<20), memmgr.WithSegment(32<<20))
	held := newMany(t, p, 32, 1<<20)
	large := request(p, context.Background(), 17<<20)
	waits(t, p, 1)
	for i, b := range held {
		b.Release()
		if i == 16 {
			require.Zero(t, p.Stats().NumWaiting, "a free range of 17 MiB in a segment in use")
		}
	}
	served(t, large).Release()
}
