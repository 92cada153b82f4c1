package memmgr_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// decaying returns a pool whose clock the test controls: memory decays after so many ticks. One
// processor works, so that all cached blocks are in one shard or in the depot.
func decaying(t *testing.T, ticks int, options ...memmgr.PoolOption) (*memtest.Simulated, *memmgr.Pool) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	sim, p := simulatedPool(t, append(options, memmgr.WithDecay(memmgr.TickTime*time.Duration(ticks)))...)
	p.Untended()
	return sim, p
}

// fillClass makes the pool cache so many bytes of one size.
func fillClass(t *testing.T, p *memmgr.Pool, size uintptr, bytes uintptr) {
	var all []memmgr.Buffer
	for n := uintptr(0); n < bytes; n += size {
		b := mustNew(t, p, size)
		all = append(all, b)
	}
	releaseAll(all)
}

// A class that is not used decays in front and depot while another class is in constant use, and so
// do its segments.
func TestIdleClassesDecayWhileOtherClassesAreUsed(t *testing.T) {
	const age, hot, cold = 8, 1000, 300 << 10
	sim, p := decaying(t, age, memmgr.WithCache(256<<20))
	keep := mustNew(t, p, hot)
	fillClass(t, p, cold, 100<<20)
	require.Greater(t, p.Stats().CachedBytes, int64(90<<20))
	for range 3 * age {
		p.Tick()
		mustNew(t, p, hot).Release()
	}
	require.Less(t, p.Stats().CachedBytes, int64(1<<20), "only the class in use is kept")
	for range age {
		p.Tick()
		mustNew(t, p, hot).Release()
	}
	_, bytes := sim.InUse()
	require.Less(t, bytes, int64(16<<20), "the segments went back")
	keep.Release()
	left := p.BudgetLeft() + p.Stats().CachedBytes
	require.LessOrEqual(t, left, int64(256<<20), "no byte of the budget is counted twice")
}

// Of a class in use, the blocks that were not needed decay.
func TestSurplusOfAClassInUseDecays(t *testing.T) {
	const age, size = 8, 100 << 10
	_, p := decaying(t, age, memmgr.WithCache(256<<20))
	fillClass(t, p, size, 200<<20)
	before := p.Stats().CachedBytes
	require.Greater(t, before, int64(190<<20))
	// A goroutine that moves to another processor uses the blocks of that shard. Therefore decay may
	// take longer than twice the age.
	for ticks := 0; ticks < 40*age && (ticks < 4*age || p.Stats().CachedBytes >= 1<<20); ticks++ {
		p.Tick()
		mustNew(t, p, size).Release()
	}
	require.Less(t, p.Stats().CachedBytes, int64(1<<20))
}

// Blocks that a class needs again within the time of decay stay.
func TestNeededBlocksDoNotDecay(t *testing.T) {
	const age, size = 8, 100 << 10
	_, p := decaying(t, age, memmgr.WithCache(256<<20))
	fillClass(t, p, size, 50<<20)
	before := p.Stats()
	for range 4 * age {
		p.Tick()
		fillClass(t, p, size, 50<<20)
	}
	after := p.Stats()
	require.Equal(t, before.NumDeviceAlloc, after.NumDeviceAlloc)
	require.Greater(t, after.CachedBytes, before.CachedBytes*9/10)
}

// The default bound is proportional to the memory of the pool, and is at least 32 MiB.
func TestDefaultBoundIsProportional(t *testing.T) {
	_, p := decaying(t, 8)
	fillClass(t, p, 1<<20, 20<<20)
	require.EqualValues(t, 20<<20, p.Stats().CachedBytes, "a small pool caches everything")
	fillClass(t, p, 1<<20, 500<<20)
	s := p.Stats()
	require.Greater(t, s.CachedBytes, s.ReservedBytes.Current*3/4)
	require.LessOrEqual(t, s.CachedBytes, s.ReservedBytes.Current*15/16)
	large := mustAllocate(t, p, 4000<<20)
	fillClass(t, p, 1<<20, 500<<20)
	s = p.Stats()
	require.GreaterOrEqual(t, s.CachedBytes, int64(500<<20))
	p.Free(large)
}

// A decay time of more ticks than the counter holds is still a long time: nothing is freed.
func TestLongDecay(t *testing.T) {
	for _, ticks := range []int{1 << 32, 1<<32 + 1} {
		sim, p := decaying(t, ticks)
		mustNew(t, p, 3<<20).Release()
		_, before := sim.InUse()
		require.NotZero(t, before)
		for range 8 {
			p.Tick()
		}
		_, bytes := sim.InUse()
		require.Equal(t, before, bytes)
		require.NoError(t, p.Close())
	}
}

// All idle memory is back at the upstream after the time of WithDecay, and at most after one and a half
// times that and two ticks, wherever it was: in the cache of a processor, in the depot or in the heap.
func TestIdleMemoryIsBackInTime(t *testing.T) {
	for _, age := range []int{1, 2, 3, 5, 8, 15, 40} {
		for phase := range min(age, 10) {
			sim, p := decaying(t, age, memmgr.WithCache(256<<20))
			for range phase {
				p.Tick()
			}
			fillClass(t, p, 5<<20, 80<<20)
			fillClass(t, p, 300<<10, 40<<20)
			fillClass(t, p, 1000, 1<<20)
			s := p.Stats()
			require.NotZero(t, s.CachedBytes)
			require.Greater(t, s.ReservedBytes.Current, s.CachedBytes)
			_, all := sim.InUse()
			ticks := 0
			for reserved := all; reserved > 0 && ticks <= 4*age+8; ticks++ {
				p.Tick()
				_, reserved = sim.InUse()
				if ticks+1 < age {
					require.Equal(t, all, reserved, "after %d of %d ticks", ticks+1, age)
				}
			}
			require.LessOrEqual(t, float64(ticks), 1.5*float64(age)+2, "ticks until all was back, of %d", age)
		}
	}
}

// The same holds if the memory goes idle little by little, so that the bound on cached blocks falls and evicts
// some of them while others decay.
func TestMemoryThatGoesIdleByAndByIsBackInTime(t *testing.T) {
	const age = 40
	sim, p := decaying(t, age)
	for i := range 2 * age {
		p.Tick()
		fillClass(t, p, uintptr(100+10*(i%age))<<10, 40<<20)
	}
	ticks := 0
	for reserved := int64(1); reserved > 0 && ticks <= 4*age; ticks++ {
		p.Tick()
		_, reserved = sim.InUse()
	}
	require.LessOrEqual(t, ticks, age*3/2+2)
	require.NoError(t, p.Close())
}

// The same holds for the pages of free blocks in segments that are in use.
func TestIdlePagesAreBackInTime(t *testing.T) {
	const age, size = 8, 300 << 10
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	p := newHostPool(t, memmgr.WithDecay(age*memmgr.TickTime), memmgr.WithCache(256<<20))
	p.Untended()
	var freed []memmgr.Buffer
	for i := range 200 {
		b := mustNew(t, p, size)
		data := testenv.Must(b.Bytes())(t)
		for at := 0; at < len(data); at += 4096 {
			data[at] = 1
		}
		if i%3 == 0 {
			defer b.Release()
		} else {
			freed = append(freed, b)
		}
	}
	var at []uintptr
	for _, b := range freed {
		at = append(at, b.Address())
		b.Release()
	}
	resident := func() (n uintptr) {
		for _, a := range at {
			n += memmgr.ResidentBytes((a+4095)&^4095, size&^4095-4096)
		}
		return n
	}
	if resident() == 0 {
		t.Skip("the system does not report which pages are resident")
	}
	ticks := 0
	for ; ticks < 4*age && resident() > 0; ticks++ {
		p.Tick()
	}
	require.GreaterOrEqual(t, ticks, age)
	require.LessOrEqual(t, ticks, age*3/2+2)
}
