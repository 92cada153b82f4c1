package memmgr_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// A block freed with work pending is not allocated before its event is done, for every order in which
// events complete.
func TestPendingBlocksWaitForTheirEvents(t *testing.T) {
	const n = 6
	rng := rand.New(rand.NewPCG(3, 3))
	for round := range 60 {
		sim, p := simulatedPool(t, memmgr.WithCache(1<<20))
		queues := []uintptr{1, 2, 3}
		sim.InOrder(1)
		type inFlight struct {
			block memmgr.Block
			event uintptr
		}
		sizes := []uintptr{1000, 300 << 10, 3 << 20, 20 << 20}
		var out []inFlight
		for range n {
			b := mustAllocate(t, p, sizes[rng.IntN(len(sizes))])
			q := queues[rng.IntN(len(queues))]
			e := sim.Submit(q)
			out = append(out, inFlight{b, e})
			b.Queue, b.Event = q, sim.CopyEvent(e)
			p.Free(b)
		}
		for _, k := range rng.Perm(n) {
			taken := map[uintptr]bool{}
			var probes []memmgr.Block
			for range 4 {
				for _, size := range sizes {
					b := mustAllocate(t, p, size)
					taken[b.Address] = true
					probes = append(probes, b)
				}
			}
			for _, f := range out {
				if !sim.EventDone(f.event) {
					require.False(t, taken[f.block.Address], "round %d: memory in flight was given out", round)
				}
			}
			for _, b := range probes {
				p.Free(b)
			}
			sim.Complete(out[k].event)
		}
		for _, f := range out {
			sim.ReleaseEvent(f.event)
		}
		require.Eventually(t, func() bool {
			p.Trim(0)
			return p.Stats().ActiveBytes.Current == 0
		}, patience, time.Millisecond)
	}
}

func TestExportedMemoryReturnsBehindABarrier(t *testing.T) {
	sim, p := simulatedPool(t)
	b, err := memmgr.New(p, memmgr.Request{Size: 5000})
	require.NoError(t, err)
	address := b.Address()
	work := sim.Submit(0) // unreported work of the consumer
	b.SetExported()
	b.Release()
	require.EqualValues(t, 0, p.Stats().Allocation.Current)
	for range 100 {
		probe := mustAllocate(t, p, 5000)
		require.NotEqual(t, address, probe.Address)
		defer p.Free(probe)
	}
	require.EqualValues(t, 1, p.Stats().Active.Current-p.Stats().Allocation.Current)
	sim.Complete(work)
	sim.ReleaseEvent(work)
	require.Eventually(t, func() bool { // the maintenance goroutine collects
		s := p.Stats()
		return s.Active.Current == s.Allocation.Current
	}, patience, 5*time.Millisecond)
}

func TestOneBarrierServesManyReturns(t *testing.T) {
	sim, p := simulatedPool(t)
	p.Untended() // each of its ticks asks for a barrier
	var all []memmgr.Buffer
	for range 64 {
		b, err := memmgr.New(p, memmgr.Request{Size: 100})
		require.NoError(t, err)
		b.SetExported()
		all = append(all, b)
	}
	work := sim.Submit(0)
	before := sim.Events()
	for _, b := range all {
		b.Release()
	}
	require.LessOrEqual(t, sim.Events()-before, 3, "one barrier for each 32 returns, and one if a tick was under way")
	sim.Complete(work)
	sim.ReleaseEvent(work)
}

func TestOutOfMemoryErrorHasAllFigures(t *testing.T) {
	sim := memtest.NewSimulated(memtest.Capacity(64 << 20))
	p := memmgr.NewPool(sim, memmgr.WithLimit(32<<20))
	var held []memmgr.Buffer
	for _, tag := range []string{"weights", "weights", "cache"} {
		b, err := memmgr.New(p, memmgr.Request{Size: 8 << 20, Tag: tag})
		require.NoError(t, err)
		held = append(held, b)
	}
	_, err := memmgr.New(p, memmgr.Request{Size: 12 << 20, Tag: "too much"})
	var oom *memmgr.OutOfMemoryError
	require.ErrorAs(t, err, &oom)
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
	for _, b := range held {
		b.Release()
	}
	b, err := memmgr.New(p, memmgr.Request{Size: 31 << 20})
	require.NoError(t, err, "caches dissolve and segments go back before a request fails")
	b.Release()
	require.NoError(t, p.Close())
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
	var oom *memmgr.OutOfMemoryError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 12<<20, oom.Pending)
	require.Equal(t, 1, calls)
	sim.Complete(event)
	last, err = memmgr.New(p, memmgr.Request{Size: 12 << 20})
	require.NoError(t, err, "the block's work is done")
	require.Equal(t, 1, calls)
	next, err := memmgr.New(p, memmgr.Request{Size: 12 << 20})
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	next.Release()
	require.NoError(t, p.Close())
}

// The upstream refuses the n-th call, for each n that the script reaches. Each failure is typed, no
// memory is lost, and the pool continues to work.
func TestEveryUpstreamFailureLosesNothing(t *testing.T) {
	script := func(p *memmgr.Pool) (failures int) {
		rng := rand.New(rand.NewPCG(11, 4))
		var held []memmgr.Buffer
		for range 300 {
			if len(held) > 0 && rng.IntN(3) == 0 {
				k := rng.IntN(len(held))
				held[k].Release()
				held[k] = held[len(held)-1]
				held = held[:len(held)-1]
				continue
			}
			b, err := memmgr.New(p, memmgr.Request{Size: uintptr(1 + rng.IntN(1<<rng.IntN(26))), Align: 1 << rng.IntN(14)})
			if err != nil {
				var oom *memmgr.OutOfMemoryError
				require.ErrorAs(t, err, &oom)
				failures++
				continue
			}
			held = append(held, b)
		}
		for _, b := range held {
			b.Release()
		}
		return failures
	}
	for n := 1; ; n++ {
		sim := memtest.NewSimulated()
		p := memmgr.NewPool(sim, memmgr.WithDecay(0))
		sim.FailAt(n)
		script(p)
		calls := p.Stats().NumDeviceAlloc
		require.Zero(t, p.Stats().AllocatedBytes.Current)
		require.NoError(t, p.Close(), "failure of call %d", n)
		blocks, bytes := sim.InUse()
		require.Zero(t, blocks)
		require.Zero(t, bytes)
		if int64(n) > calls+2 {
			require.Greater(t, n, 10, "the script was meant to grow the pool often")
			return
		}
	}
}

func TestIdleMemoryDecays(t *testing.T) {
	sim, p := simulatedPool(t, memmgr.WithDecay(500*time.Millisecond))
	for range 10 {
		p.Free(mustAllocate(t, p, 1<<20))
	}
	p.Free(mustAllocate(t, p, 50<<20))
	require.NotZero(t, p.Stats().ReservedBytes.Current)
	require.Eventually(t, func() bool {
		_, bytes := sim.InUse()
		return bytes == 0
	}, patience, 50*time.Millisecond)
	require.Zero(t, p.Stats().ReservedBytes.Current)
	p.Free(mustAllocate(t, p, 1<<20))
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
	b, err := memmgr.New(p, memmgr.Request{Size: 100})
	require.NoError(t, err)
	err = p.Close()
	var leak *memmgr.LeakError
	require.ErrorAs(t, err, &leak)
	require.Len(t, leak.Buffers, 1)
	require.Contains(t, err.Error(), "careless")
	require.Contains(t, err.Error(), "TestCloseWithBuffersInUse")
	require.True(t, b.Valid())
	_, err = memmgr.New(p, memmgr.Request{Size: 100})
	require.ErrorIs(t, err, memmgr.ErrClosed)
	b.Release()
	blocks, _ := sim.InUse()
	require.Zero(t, blocks, "the last release gives the segment back")
	require.NoError(t, p.Close())
}

func TestStatsFollowABufferThroughItsLife(t *testing.T) {
	_, p := simulatedPool(t)
	a, err := memmgr.New(p, memmgr.Request{Size: 1000})
	require.NoError(t, err)
	b, err := memmgr.New(p, memmgr.Request{Size: 5 << 20})
	require.NoError(t, err)
	s := p.Stats()
	require.EqualValues(t, 2, s.Allocation.Current)
	require.EqualValues(t, 1000+5<<20, s.RequestedBytes.Current)
	require.EqualValues(t, 1024+5<<20, s.AllocatedBytes.Current)
	require.GreaterOrEqual(t, s.ReservedBytes.Current, s.AllocatedBytes.Current)
	require.Equal(t, s.NumDeviceAlloc, s.Segment.Current)
	c, err := memmgr.New(p, memmgr.Request{Size: 6 << 20})
	require.NoError(t, err)
	c.Release()
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
	for _, b := range rest {
		b.Release()
	}
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

func TestErrorsAreTyped(t *testing.T) {
	_, p := simulatedPool(t)
	_, err := memmgr.New(p, memmgr.Request{Size: 10, Align: 3})
	require.ErrorIs(t, err, memmgr.ErrRequest)
	_, err = memmgr.New(p, memmgr.Request{Size: 1 << 50})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	require.False(t, errors.Is(err, memmgr.ErrRequest))
	require.True(t, strings.HasPrefix(err.Error(), "memmgr: "))
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
