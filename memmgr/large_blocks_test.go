package memmgr_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// Idle large blocks are reused like small ones: repeated rounds ask the upstream once.
func TestLargeBlocksStayIdleForReuse(t *testing.T) {
	_, p := simulatedPool(t)
	var held [16]memmgr.Buffer
	for range 200 {
		for i := range held {
			b := mustNew(t, p, 20<<20)
			held[i] = b
		}
		releaseAll(held[:])
	}
	s := p.Stats()
	require.LessOrEqual(t, s.NumDeviceAlloc, int64(len(held)))
	require.Zero(t, s.Allocation.Current)
	require.EqualValues(t, 200*len(held), s.Allocation.Allocated)
	require.EqualValues(t, len(held), s.Allocation.Peak)
	for _, peak := range []int64{s.AllocatedBytes.Peak, s.RequestedBytes.Peak, s.ActiveBytes.Peak} {
		require.EqualValues(t, len(held)*20<<20, peak)
	}
	require.EqualValues(t, len(held)*20<<20, s.ReservedBytes.Current)
}

// Above the high mark idle segments are freed, down to the low mark.
func TestRetention(t *testing.T) {
	sim, p := simulatedPool(t, memmgr.WithDecay(0), memmgr.WithRetention(200<<20, 100<<20))
	blocks := allocateMany(t, p, 3, 80<<20)
	freeAll(p, blocks[:2])
	_, bytes := sim.InUse()
	require.EqualValues(t, 240<<20, bytes)
	p.Free(blocks[2])
	_, bytes = sim.InUse()
	require.EqualValues(t, 80<<20, bytes)
}

// A segment of one large block serves several blocks once that is free.
func TestALargeSegmentIsDivided(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(100<<20), memmgr.WithDecay(0))
	p.Free(mustAllocate(t, p, 100<<20))
	a := mustAllocate(t, p, 40<<20)
	b := mustAllocate(t, p, 16<<20)
	c := mustAllocate(t, p, 44<<20)
	require.ErrorIs(t, testenv.ErrorOf(p.Allocate(memmgr.Request{Size: 1})), memmgr.ErrOutOfMemory)
	require.EqualValues(t, 1, p.Stats().NumDeviceAlloc)
	freeAll(p, []memmgr.Block{a, b, c})
	p.Free(mustAllocate(t, p, 100<<20))
}

// trimming makes a pool over a device of 64 MiB and calls Trim, whose call of Free waits until gate is closed.
// refused is called between the first refusal of the device and its return.
func trimming(t *testing.T, gate chan struct{}, refused func(trimmed chan uint64)) (p *memmgr.Pool, trimmed chan uint64) {
	sim := memtest.NewSimulated(memtest.Capacity(64 << 20))
	t.Cleanup(func() { returned(t, sim) })
	trimmed = make(chan uint64)
	freeing, refusal := make(chan struct{}), sync.OnceFunc(func() { refused(trimmed) })
	up := &upstream{
		Resource: sim,
		answered: func(err error) {
			if err != nil {
				refusal()
			}
		},
		freeing: sync.OnceFunc(func() { close(freeing); <-gate }),
	}
	p = newPool(t, up, memmgr.WithDecay(0))
	p.Free(mustAllocate(t, p, 60<<20))
	go func() { trimmed <- p.Trim(0) }()
	<-freeing
	return p, trimmed
}

// A pool serves requests while it frees memory. A request that the upstream refuses meanwhile is
// served from the memory that was being freed.
func TestRequestsContinueWhileMemoryGoesBack(t *testing.T) {
	gate, refused := make(chan struct{}), make(chan struct{})
	p, trimmed := trimming(t, gate, func(chan uint64) { close(refused) })
	small := mustAllocate(t, p, 1000) // the lock is free
	large := make(chan error)
	var block memmgr.Block
	go func() {
		b, err := p.Allocate(memmgr.Request{Size: 60 << 20})
		block = b
		large <- err
	}()
	<-refused
	select {
	case err := <-large:
		require.NoError(t, err, "refused before the memory on its way was back")
	default:
	}
	close(gate)
	require.NoError(t, <-large)
	require.EqualValues(t, 60<<20, <-trimmed)
	freeAll(p, []memmgr.Block{block, small})
}

// Memory that was freed between the refusal of the upstream and its return serves the request.
func TestMemoryReturnedDuringARefusal(t *testing.T) {
	gate := make(chan struct{})
	p, _ := trimming(t, gate, func(trimmed chan uint64) {
		close(gate)
		<-trimmed
	})
	p.Free(mustAllocate(t, p, 60<<20))
}

// A buffer that grows by copies does not leave the smaller ones behind: idle segments that could pay for a
// larger one go back before it is allocated.
func TestIdleSegmentsPayForALargerOne(t *testing.T) {
	sim, p := simulatedPool(t, memmgr.WithDecay(0))
	var last memmgr.Block
	for mib := uintptr(16); mib <= 196; mib += 3 {
		next := mustAllocate(t, p, mib<<20)
		if last.Size != 0 {
			p.Free(last)
		}
		last = next
	}
	require.Less(t, p.Stats().ReservedBytes.Peak, int64(1.5*(196+193)*(1<<20)))
	_, held := sim.InUse()
	require.EqualValues(t, p.Stats().ReservedBytes.Current, held)
	p.Free(last)
}

// The first segment of a large request has its size, also if that is no multiple of anything.
func TestOneLargeRequestReservesItsSize(t *testing.T) {
	for _, size := range []uintptr{2<<20 + 1, 10_000_000, 40_000_000, 64<<20 + 4096, 300_000_001} {
		_, p := simulatedPool(t)
		b := mustAllocate(t, p, size)
		require.Less(t, p.Stats().ReservedBytes.Current, int64(size+4096))
		p.Free(b)
	}
}

// Small blocks that are allocated beside large ones and stay in use do not keep their segments.
func TestSmallBlocksDoNotKeepLargeSegments(t *testing.T) {
	const age = 4
	_, p := decaying(t, age)
	rng := rand.New(rand.NewPCG(3, 3))
	var small, large []memmgr.Block
	for bytes := 0; bytes < 50<<20; {
		if len(large) < 20 {
			large = append(large, mustAllocate(t, p, uintptr(32<<20+rng.IntN(63<<20))))
		}
		for range 5 {
			n := 1024 + rng.IntN(1<<20)
			small = append(small, mustAllocate(t, p, uintptr(n)))
			bytes += n
		}
	}
	freeAll(p, large)
	for range 2 * age {
		p.Tick()
	}
	require.LessOrEqual(t, p.Stats().ReservedBytes.Current, int64(100<<20))
	freeAll(p, small)
}

// If a pool was in use by as much before, and enough memory for a large request is free, but in pieces, its
// segment has room for further requests. Otherwise it has the size of the request.
func TestOnlyVaryingSizesGetLargerSegments(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithDecay(0))
	reserved := func() int64 { return p.Stats().ReservedBytes.Current }
	held := allocateMany(t, p, 5, 1<<30)
	require.EqualValues(t, 5<<30, reserved())
	shrink := func(i int) { // leaves a piece of 400 MiB
		p.Free(held[i])
		held[i] = mustAllocate(t, p, 624<<20)
	}
	shrink(0)
	shrink(1)
	held = append(held, mustAllocate(t, p, 900<<20))
	require.EqualValues(t, 5<<30+900<<20, reserved(), "more than the pieces together")
	held = append(held, mustAllocate(t, p, 401<<20))
	require.EqualValues(t, 5<<30+1301<<20, reserved(), "more is in use than before")
	shrink(2)
	shrink(3)
	before := reserved()
	held = append(held, mustAllocate(t, p, 401<<20))
	require.Greater(t, reserved(), before)
	require.LessOrEqual(t, reserved(), before+433<<20)
	freeAll(p, held)
}
