package memmgr_test

import (
	"context"
	"math/rand/v2"
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

// Pools share a limit of 40 MiB in several ways, and all memory is idle: cached, in pieces, or its work has ended. A
// request for the whole limit to any of them is served, with a context and without, also with marks of WithRetention,
// below which evictions keep segments.
func TestIdleMemoryOfAllPoolsBelowALimitServesARequest(t *testing.T) {
	const limit = 40 << 20
	type pools = []*memmgr.Pool
	retain := memmgr.WithRetention(4<<20, 4<<20)
	for name, open := range map[string]func(*memtest.Simulated) pools{
		"one":                  func(s *memtest.Simulated) pools { return pools{memmgr.NewPool(s, memmgr.WithLimit(limit))} },
		"beside another":       func(s *memtest.Simulated) pools { return siblings(memmgr.NewLimit(s, limit), 2) },
		"beside two":           func(s *memtest.Simulated) pools { return siblings(memmgr.NewLimit(s, limit), 3) },
		"beside others, marks": func(s *memtest.Simulated) pools { return siblings(memmgr.NewLimit(s, limit), 3, retain) },
		"beside seven":         func(s *memtest.Simulated) pools { return siblings(memmgr.NewLimit(s, limit), 8) },
		"two limits": func(s *memtest.Simulated) pools {
			return siblings(memmgr.NewLimit(s, limit), 2, memmgr.WithLimit(limit))
		},
		"above another": func(s *memtest.Simulated) pools {
			p := memmgr.NewPool(s, memmgr.WithLimit(limit))
			return pools{memmgr.NewPool(p), p}
		},
		"above another, beside one": func(s *memtest.Simulated) pools {
			two := siblings(memmgr.NewLimit(s, limit), 2)
			return pools{memmgr.NewPool(two[1]), two[0], two[1]}
		},
	} {
		for seed := range uint64(4) {
			for i := range open(memtest.NewSimulated()) {
				sim := memtest.NewSimulated()
				all := open(sim)
				fillAndRelease(t, sim, all, rand.New(rand.NewPCG(seed, uint64(i))))
				r := memmgr.Request{Size: limit}
				if seed%2 == 1 {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					r.Context = ctx
				}
				b, err := memmgr.New(all[i], r)
				require.NoError(t, err, "%s, pool %d, seed %d", name, i, seed)
				b.Release()
				for _, p := range all {
					require.NoError(t, p.Close())
				}
			}
		}
	}
}

// Evictions return segments above the marks of WithRetention. A request counts them as room of the limit: it is served
// with any marks while all memory is idle.
func TestIdleMemoryAboveTheMarksServesARequest(t *testing.T) {
	for _, marks := range [][2]uint64{
		{0, 0}, {1 << 20, 0}, {1 << 20, 1 << 19}, {1 << 20, 1 << 20}, {2 << 20, 1 << 20}, {4 << 20, 4 << 20},
		{8 << 20, 4 << 20},
	} {
		p := memmgr.NewPool(memtest.NewSimulated(), memmgr.WithLimit(16<<20), memmgr.WithSegment(1<<20),
			memmgr.WithRetention(marks[0], marks[1]))
		var all []memmgr.Buffer
		for range 60 {
			all = append(all, mustNew(t, p, 100<<10))
		}
		for _, b := range all {
			b.Release()
		}
		b, err := memmgr.New(p, memmgr.Request{Size: 16 << 20})
		require.NoError(t, err, marks)
		b.Release()
		require.NoError(t, p.Close())
	}
}

// siblings makes pools over the same resource.
func siblings(r memmgr.Resource, n int, options ...memmgr.PoolOption) (all []*memmgr.Pool) {
	for range n {
		all = append(all, memmgr.NewPool(r, options...))
	}
	return all
}

// fillAndRelease allocates blocks of many sizes in pools and releases them, some with work that ends afterwards.
func fillAndRelease(t *testing.T, sim *memtest.Simulated, pools []*memmgr.Pool, rng *rand.Rand) {
	for _, p := range pools {
		var blocks []memmgr.Block
		for range 100 {
			size := uintptr(1) << rng.IntN(18)
			if b, err := p.Allocate(memmgr.Request{Size: size + uintptr(rng.IntN(int(size)))}); err == nil {
				blocks = append(blocks, b)
			}
		}
		require.NotEmpty(t, blocks)
		work := sim.Submit(1)
		for i, b := range blocks {
			if i%8 == 0 {
				b.Event, b.Queue = sim.CopyEvent(work), 1
			}
			p.Free(b)
		}
		sim.Complete(work)
		sim.ReleaseEvent(work)
	}
}

// Work on memory of another pool has ended. A request takes that memory, whether a limit refused or the device.
func TestEndedWorkOfAnotherPool(t *testing.T) {
	for name, open := range map[string]func() (*memtest.Simulated, memmgr.Resource){
		"device": func() (*memtest.Simulated, memmgr.Resource) {
			sim := memtest.NewSimulated(memtest.Capacity(8 << 20))
			return sim, sim
		},
		"limit": func() (*memtest.Simulated, memmgr.Resource) {
			sim := memtest.NewSimulated()
			return sim, memmgr.NewLimit(sim, 8<<20)
		},
	} {
		sim, up := open()
		both := siblings(up, 2)
		x := mustAllocate(t, both[0], 6<<20)
		work := sim.Submit(1)
		x.Event, x.Queue = sim.CopyEvent(work), 1
		both[0].Free(x)
		sim.Complete(work)
		sim.ReleaseEvent(work)
		y, err := both[1].Allocate(memmgr.Request{Size: 6 << 20})
		require.NoError(t, err, name)
		both[1].Free(y)
		for _, p := range both {
			require.NoError(t, p.Close())
		}
	}
}
