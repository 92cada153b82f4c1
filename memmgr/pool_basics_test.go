package memmgr_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
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

func mustAllocate(t testing.TB, r memmgr.Resource, size uintptr) memmgr.Block {
	t.Helper()
	b, err := r.Allocate(memmgr.Request{Size: size})
	require.NoError(t, err)
	return b
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
	var all []memmgr.Block
	for range 64 {
		all = append(all, mustAllocate(t, p, 1<<20))
	}
	for _, b := range all {
		p.Free(b)
	}
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
	p := memmgr.NewPool(sim, memmgr.WithName("careless"))
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
	require.NoError(t, p.Close())
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

// Statistics that shards count are exact when some goroutines allocate and others free.
func TestStatsAreExactUnderConcurrency(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithCache(1<<20))
	const goroutines, rounds = 6, 3000
	var wg sync.WaitGroup
	handover := make(chan memmgr.Buffer, 100)
	failures := make(chan error, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			for i := range rounds {
				b, err := memmgr.New(p, memmgr.Request{Size: uintptr(1 + rng.IntN(1<<rng.IntN(21)))})
				if err != nil {
					failures <- err
					return
				}
				select {
				case handover <- b:
				default:
					b.Release()
				}
				if i%2 == 0 {
					select {
					case b := <-handover:
						b.Release()
					default:
					}
				}
				if i%500 == 0 {
					p.Trim(0)
				}
			}
		})
	}
	wg.Wait()
	close(handover)
	held, asked := int64(0), int64(0)
	var rest []memmgr.Buffer
	for b := range handover {
		held += int64(b.Size())
		asked += int64(b.Requested())
		rest = append(rest, b)
	}
	select {
	case err := <-failures:
		t.Fatal(err)
	default:
	}
	s := p.Stats()
	require.EqualValues(t, len(rest), s.Allocation.Current)
	require.Equal(t, held, s.AllocatedBytes.Current)
	require.Equal(t, asked, s.RequestedBytes.Current)
	require.EqualValues(t, goroutines*rounds, s.Allocation.Allocated)
	releaseAll(rest)
	require.Zero(t, p.Stats().AllocatedBytes.Current)
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

// Blocks exceed their requests by no more than the documentation of Pool says.
func TestBlocksExceedRequestsByLittle(t *testing.T) {
	_, p := simulatedPool(t)
	for size := uintptr(1); size < 4<<20; size += 1 + size/97 {
		b := mustAllocate(t, p, size)
		require.Zero(t, b.Size%256)
		most := (size + 255) / 256 * 256
		switch {
		case size > 32<<10:
			most = size + size/62 // 1.6 %
		case size > 2<<10:
			most = size + size/8
		}
		require.LessOrEqual(t, b.Size, most, "%d bytes", size)
		p.Free(b)
	}
}
