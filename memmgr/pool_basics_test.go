package memmgr_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// simulatedPool returns a pool over a simulated device. At the end all memory and events of the device
// must be released.
func simulatedPool(t testing.TB, options ...memmgr.PoolOption) (*memtest.Simulated, *memmgr.Pool) {
	sim := memtest.NewSimulated()
	p := memmgr.NewPool(sim, options...)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		blocks, _ := sim.InUse()
		require.Zero(t, blocks, "segments that the device did not get back")
		noEvents(t, sim, "events that were not released")
	})
	return sim, p
}

// newPool returns a pool that is closed at the end of the test.
func newPool(t testing.TB, upstream memmgr.Resource, options ...memmgr.PoolOption) *memmgr.Pool {
	p := memmgr.NewPool(upstream, options...)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func newHostPool(t testing.TB, options ...memmgr.PoolOption) *memmgr.Pool {
	return newPool(t, memmgr.Host(), options...)
}

func mustAllocate(t testing.TB, r memmgr.Resource, size uintptr) memmgr.Block {
	t.Helper()
	b := testenv.Must(r.Allocate(memmgr.Request{Size: size}))(t)
	return b
}

func allocateMany(t testing.TB, r memmgr.Resource, n int, size uintptr) (all []memmgr.Block) {
	t.Helper()
	for range n {
		all = append(all, mustAllocate(t, r, size))
	}
	return all
}

func freeAll(r memmgr.Resource, all []memmgr.Block) {
	for _, b := range all {
		r.Free(b)
	}
}

func TestLastFreedBlockIsReusedFirst(t *testing.T) {
	// One processor: on another one the goroutine would find other blocks first.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	_, p := simulatedPool(t)
	for _, size := range []uintptr{1, 3000, 100 << 10, 1 << 20} {
		a := mustAllocate(t, p, size)
		p.Free(a)
		same := false
		for range 8 {
			b := mustAllocate(t, p, size)
			same = same || a.Address == b.Address
			p.Free(b)
		}
		require.True(t, same, "size %d", size)
	}
	require.Panics(t, func() { p.Free(memmgr.Block{Address: 1}) })
	a := mustAllocate(t, p, 10)
	p.Free(a)
	require.Panics(t, func() { p.Free(a) }, "a second free")
}

func TestOneBarrierServesManyReturns(t *testing.T) {
	sim, p := simulatedPool(t)
	p.Untended() // each of its ticks asks for a barrier
	var all []memmgr.Buffer
	for range 64 {
		b := mustNew(t, p, 100)
		b.SetExported()
		all = append(all, b)
	}
	work := sim.Submit(0)
	before := sim.Events()
	releaseAll(all)
	require.LessOrEqual(t, sim.Events()-before, 3, "one barrier for each 32 returns, and one if a tick was under way")
	sim.Complete(work)
	sim.ReleaseEvent(work)
}

func TestOutOfMemoryErrorHasAllFigures(t *testing.T) {
	sim := memtest.NewSimulated(memtest.Capacity(64 << 20))
	p := newPool(t, sim, memmgr.WithLimit(32<<20))
	var held []memmgr.Buffer
	for _, tag := range []string{"weights", "weights", "cache"} {
		b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 8 << 20, Tag: tag}))(t)
		held = append(held, b)
	}
	_, err := memmgr.New(p, memmgr.Request{Size: 12 << 20, Tag: "too much"})
	oom := testenv.As[*memmgr.OutOfMemoryError](t, err)
	require.EqualValues(t, 12<<20, oom.Rounded)
	require.EqualValues(t, 24<<20, oom.Allocated)
	require.EqualValues(t, 32<<20, oom.Limit)
	require.EqualValues(t, 64<<20, oom.DeviceTotal)
	require.GreaterOrEqual(t, oom.Reserved, uint64(24<<20))
	require.Equal(t, []memmgr.Holder{{Tag: "weights", Bytes: 16 << 20, Count: 2}, {Tag: "cache", Bytes: 8 << 20, Count: 1}}, oom.Holders)
	for _, part := range []string{"12 MiB", "too much", "weights 16 MiB in 2", "limit 32 MiB", "device total 64 MiB"} {
		require.Contains(t, err.Error(), part)
	}
	require.EqualValues(t, 1, p.Stats().NumOOMs)
	releaseAll(held)
	b, err := memmgr.New(p, memmgr.Request{Size: 31 << 20})
	require.NoError(t, err, "caches dissolve and segments go back before a request fails")
	b.Release()
}

func TestOutOfMemoryFindsWorkThatIsDoneAndAsksForHelp(t *testing.T) {
	sim := memtest.NewSimulated(memtest.Capacity(16 << 20))
	calls := 0
	var last memmgr.Buffer
	p := memmgr.NewPool(sim, memmgr.OnOutOfMemory(func(e *memmgr.OutOfMemoryError) bool {
		calls++
		if !last.Valid() {
			return false
		}
		last.Release()
		return true
	}))
	b := mustAllocate(t, p, 12<<20)
	event := sim.Submit(5)
	b.Queue, b.Event = 5, event
	p.Free(b)
	_, err := memmgr.New(p, memmgr.Request{Size: 12 << 20})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory, "a request without a context does not wait for the device")
	oom := testenv.As[*memmgr.OutOfMemoryError](t, err)
	require.EqualValues(t, 12<<20, oom.Pending)
	require.Equal(t, 1, calls)
	sim.Complete(event)
	last, err = memmgr.New(p, memmgr.Request{Size: 12 << 20})
	require.NoError(t, err, "the block's work is done")
	require.Equal(t, 1, calls)
	next := mustNew(t, p, 12<<20)
	require.Equal(t, 2, calls)
	next.Release()
	require.NoError(t, p.Close())
}

func TestTrimLeavesTheRequestedBytes(t *testing.T) {
	sim, p := simulatedPool(t, memmgr.WithDecay(0))
	all := allocateMany(t, p, 64, 1<<20)
	freeAll(p, all)
	p.Trim(8 << 20)
	_, bytes := sim.InUse()
	require.LessOrEqual(t, bytes, int64(8<<20))
	require.EqualValues(t, bytes, p.Stats().ReservedBytes.Current)
	p.Trim(0)
	_, bytes = sim.InUse()
	require.Zero(t, bytes)
}

func TestCloseWithBuffersInUse(t *testing.T) {
	sim := memtest.NewSimulated()
	p := newPool(t, sim, memmgr.WithName("careless"))
	b := mustNew(t, p, 100)
	err := p.Close()
	leak := testenv.As[*memmgr.LeakError](t, err)
	require.Len(t, leak.Buffers, 1)
	require.Contains(t, err.Error(), "careless")
	require.Contains(t, err.Error(), "TestCloseWithBuffersInUse")
	require.True(t, b.Valid())
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 100})), memmgr.ErrClosed)
	b.Release()
	blocks, _ := sim.InUse()
	require.Zero(t, blocks, "the last release gives the segment back")
}

func TestStatsFollowABufferThroughItsLife(t *testing.T) {
	_, p := simulatedPool(t)
	a := mustNew(t, p, 1000)
	b := mustNew(t, p, 5<<20)
	s := p.Stats()
	require.EqualValues(t, 2, s.Allocation.Current)
	require.EqualValues(t, 1000+5<<20, s.RequestedBytes.Current)
	require.EqualValues(t, 1024+5<<20, s.AllocatedBytes.Current)
	require.GreaterOrEqual(t, s.ReservedBytes.Current, s.AllocatedBytes.Current)
	require.Equal(t, s.NumDeviceAlloc, s.Segment.Current)
	mustNew(t, p, 6<<20).Release()
	after := p.Stats().AllocatedBytes
	require.Equal(t, s.AllocatedBytes.Current, after.Current)
	require.EqualValues(t, after.Current+6<<20, after.Peak)
	b.Release()
	a.Release()
	s = p.Stats()
	require.Zero(t, s.Allocation.Current)
	require.Zero(t, s.AllocatedBytes.Current)
	require.Zero(t, s.RequestedBytes.Current)
	require.EqualValues(t, 3, s.Allocation.Freed)
	require.EqualValues(t, 1024+11<<20, s.AllocatedBytes.Peak)
}

// ResetPeaks sets every peak to the current value, those of tenants too.
func TestResetPeaks(t *testing.T) {
	_, p := simulatedPool(t)
	tenant := newTenant(t, p, "a", memmgr.TenantOptions{})
	kept, other := mustNew(t, p, 1<<20), mustNew(t, tenant, 2<<20)
	for _, size := range []uintptr{100, 1 << 20, 40 << 20} {
		b, c := mustNew(t, p, size), mustNew(t, tenant, size)
		tenant.Stats() // notes the tenant's peak
		b.Release()
		c.Release()
	}
	p.Trim(0)
	peaked := 0
	for _, s := range allStats(p.Stats()) {
		if s.Peak > s.Current {
			peaked++
		}
	}
	require.Greater(t, peaked, 6)
	require.Greater(t, tenant.Stats().ActiveBytes.Peak, tenant.Stats().ActiveBytes.Current)
	p.ResetPeaks()
	for _, s := range append(allStats(p.Stats()), tenant.Stats().ActiveBytes) {
		require.Equal(t, s.Current, s.Peak)
	}
	mustNew(t, p, 1<<20).Release()
	require.Greater(t, p.Stats().AllocatedBytes.Peak, p.Stats().AllocatedBytes.Current)
	kept.Release()
	other.Release()
}

func allStats(s memmgr.Stats) []memmgr.Stat {
	return []memmgr.Stat{s.Allocation, s.Segment, s.Active, s.InactiveSplit, s.AllocatedBytes, s.ReservedBytes, s.ActiveBytes, s.InactiveSplitBytes, s.RequestedBytes}
}

func TestAllocationPathLeavesTheGoHeapAlone(t *testing.T) {
	if instrumented {
		t.Skip("the race detector and the address sanitizer allocate")
	}
	memmgr.RecordStacks(0)
	defer memmgr.RecordStacks(16)
	_, p := simulatedPool(t)
	for _, size := range []uintptr{1, 4096, 1 << 20, 3 << 20, 20 << 20} {
		allocs := testing.AllocsPerRun(1000, func() {
			b, err := memmgr.New(p, memmgr.Request{Size: size})
			if err != nil {
				panic(err)
			}
			b.Retain()
			b.Release()
			b.Release()
		})
		require.Zero(t, allocs, "size %d", size)
	}
}
