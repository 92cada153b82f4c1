package memmgr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// A snapshot lists the waiters with their requests and reservations.
func TestSnapshotListsWaiters(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(32<<20))
	tenant := newTenant(t, p, "t", memmgr.TenantOptions{Hard: 4 << 20})
	require.Empty(t, p.Snapshot().Waiting)
	mine := mustNew(t, tenant, 4<<20)
	held := newMany(t, p, 28, 1<<20)
	before := time.Now()
	large := request(p, context.Background(), 12<<20)
	waits(t, p, 1)
	small := request(tenant, context.Background(), 1<<20)
	waits(t, p, 2)
	for i := 0; i < 28; i += 2 {
		held[i].Release()
	}
	var s *memmgr.Snapshot
	require.Eventually(t, func() bool {
		if s = p.Snapshot(); !s.Waiting[0].ReservedSince.IsZero() {
			return true
		}
		// A later request overtakes it, again if a reservation has ended meanwhile.
		if later := <-request(p, context.Background(), 1<<20); later.err == nil {
			later.b.Release()
		}
		return false
	}, patience, 100*time.Microsecond)
	w := s.Waiting[0]
	require.EqualValues(t, 12<<20, w.Requested)
	require.Empty(t, w.Tenant)
	require.False(t, w.AtHard)
	require.False(t, w.Since.Before(before))
	require.False(t, w.ReservedSince.Before(w.Since))
	require.NotZero(t, w.Reservations)
	kept := 0
	for _, seg := range s.Segments {
		if seg.Closed {
			kept++
		}
	}
	require.NotZero(t, kept)
	require.Equal(t, memmgr.SnapshotWait{Requested: 1 << 20, Tenant: "t", AtHard: true, Since: s.Waiting[1].Since}, s.Waiting[1])
	for i := 1; i < 28; i += 2 {
		held[i].Release()
	}
	mine.Release()
	served(t, large).Release()
	served(t, small).Release()
	require.Empty(t, p.Snapshot().Waiting)
}
