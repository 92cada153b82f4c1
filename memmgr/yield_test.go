package memmgr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// Pools below one limit or on one device release idle memory for each other: whole segments, cached
// blocks, and free blocks of the heap.
func TestPoolsYieldToEachOther(t *testing.T) {
	const room = 100 << 20
	for _, size := range []uintptr{64 << 10, 1 << 20, 3 << 20, 50 << 20} {
		for name, up := range sharing(room) {
			t.Run(name, func(t *testing.T) {
				pools, end := threePools(t, up, memmgr.WithDecay(0))
				defer end()
				for round := range 6 { // each takes nearly everything in turn
					releaseAll(newMany(t, pools[round%len(pools)], int(room*9/10/size), size))
				}
			})
		}
	}
}

// Other pools release as much as is needed and no more. Memory in use stays.
func TestYieldReleasesNoMoreThanNeeded(t *testing.T) {
	l := memmgr.NewLimit(memtest.NewSimulated(), 100<<20)
	a, b := memmgr.NewPool(l, memmgr.WithDecay(0)), memmgr.NewPool(l, memmgr.WithDecay(0))
	kept := mustNew(t, a, 20<<20)
	releaseAll(newMany(t, a, 4, 20<<20))
	mine := mustNew(t, b, 30<<20)
	require.EqualValues(t, 60<<20, a.Stats().ReservedBytes.Current)
	require.True(t, kept.Valid())
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(b, memmgr.Request{Size: 60 << 20})), memmgr.ErrOutOfMemory, "20 and 30 MiB are in use")
	require.EqualValues(t, 60<<20, a.Stats().ReservedBytes.Current, "nothing was given up in vain")
	kept.Release()
	mine.Release()
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// A pool with a limit of its own does not ask other pools when this limit refuses a request.
func TestOwnLimitTakesNothingFromOtherPools(t *testing.T) {
	sim := memtest.NewSimulated()
	a, b := memmgr.NewPool(sim, memmgr.WithDecay(0)), memmgr.NewPool(sim, memmgr.WithLimit(1<<20))
	mustNew(t, a, 20<<20).Release()
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(b, memmgr.Request{Size: 2 << 20})), memmgr.ErrOutOfMemory)
	require.EqualValues(t, 20<<20, a.Stats().ReservedBytes.Current)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// Memory that becomes idle in one pool, or that the pool gives back, serves waiters of another pool.
func TestWaitersGetMemoryOfAnotherPool(t *testing.T) {
	for _, up := range sharing(32 << 20) {
		for _, trims := range []bool{false, true} {
			a, b := memmgr.NewPool(up, memmgr.WithDecay(0)), memmgr.NewPool(up, memmgr.WithDecay(0))
			held := mustNew(t, b, 30<<20)
			large, small := request(a, context.Background(), 20<<20), request(a, context.Background(), 3<<20)
			waits(t, a, 2)
			held.Release() // stays in b until a's poller asks for it
			if trims {
				b.Trim(0)
			}
			served(t, large).Release()
			served(t, small).Release()
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		}
	}
}

// The idle memory of the pool and that of another pool are each too little for a request, but
// together they suffice.
func TestTwoPoolsYieldTogether(t *testing.T) {
	for _, ctx := range []context.Context{nil, context.Background()} {
		l := memmgr.NewLimit(memtest.NewSimulated(), 16<<20)
		a, b := memmgr.NewPool(l, memmgr.WithDecay(0)), memmgr.NewPool(l, memmgr.WithDecay(0))
		mine, others := mustNew(t, a, 7<<20), mustNew(t, b, 7<<20)
		others.Release()
		mine.Release()
		c := testenv.Must(memmgr.New(a, memmgr.Request{Size: 14 << 20, Context: ctx}))(t)
		c.Release()
		c = testenv.Must(memmgr.New(b, memmgr.Request{Size: 16 << 20, Context: ctx}))(t)
		c.Release()
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

// A device refuses a request that waits. The idle memory of its pool, or that of another pool, goes back to the device,
// which is asked again at once.
func TestIdleMemoryServesARequestThatTheDeviceRefused(t *testing.T) {
	serve := func(limit uint64, own bool) (served bool) {
		up := memtest.NewSimulated(memtest.Capacity(32 << 20))
		p := memmgr.NewPool(up, memmgr.WithDecay(0), memmgr.WithLimit(limit))
		other := memmgr.NewPool(up, memmgr.WithDecay(0))
		idle, held := other, p
		if own {
			idle, held = p, other
		}
		b := mustNew(t, held, 10<<20)
		mustNew(t, idle, 20<<20).Release()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // less than askAgain
		defer cancel()
		c, err := memmgr.New(p, memmgr.Request{Size: 22 << 20, Context: ctx})
		if err == nil {
			require.EqualValues(t, 1, p.Stats().NumAllocRetries)
		}
		c.Release()
		b.Release()
		require.NoError(t, p.Close())
		require.NoError(t, other.Close())
		return err == nil
	}
	for _, limit := range []uint64{0, 32 << 20} {
		for _, own := range []bool{false, true} {
			for start := time.Now(); !serve(limit, own); { // a busy machine may take longer
				require.Less(t, time.Since(start), patience, "limit %d, own %v", limit, own)
			}
		}
	}
}
