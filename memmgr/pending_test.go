package memmgr_test

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// asked is the simulated device. It counts queries of events, and refuses barriers and joins on
// request. Failed work ends only for callers that wait for it.
type asked struct {
	*memtest.Simulated
	questions atomic.Int64
	refuse    atomic.Bool
	barriers  atomic.Int64
}

func (a *asked) EventDone(event uintptr) bool {
	a.questions.Add(1)
	return a.Simulated.EventDone(event)
}

func (a *asked) Barrier(queue uintptr) (uintptr, error) {
	a.barriers.Add(1)
	if a.refuse.Load() {
		return 0, errors.New("no barrier")
	}
	return a.Simulated.Barrier(queue)
}

func (a *asked) Join(queue, x, y uintptr) (uintptr, error) {
	if a.refuse.Load() {
		return 0, errors.New("no join")
	}
	return a.Simulated.Join(queue, x, y)
}

func newAsked() *asked { return &asked{Simulated: memtest.NewSimulated()} }

// freePending frees a block of the pool with work on a queue pending, and returns the event of the
// work.
func freePending(t testing.TB, sim *memtest.Simulated, p *memmgr.Pool, size, queue uintptr) (work uintptr) {
	b := mustAllocate(t, p, size)
	work = sim.Submit(queue)
	b.Queue, b.Event = queue, sim.CopyEvent(work)
	p.Free(b)
	return work
}

func active(p *memmgr.Pool) int64 { return p.Stats().Active.Current }

// For every order in which work ends, each end costs a bounded number of queries, and no finished
// block is hidden by work that goes on.
func TestCompletingQueriesEachBlockAFewTimes(t *testing.T) {
	const n = 6000
	for name, queues := range map[string]int{"one queue": 1, "many": 7} {
		for order, perm := range map[string]func(int) []int{
			"oldest first": func(n int) []int { return sequence(n, false) },
			"newest first": func(n int) []int { return sequence(n, true) },
			"random":       rand.New(rand.NewPCG(5, 5)).Perm,
		} {
			sim := newAsked()
			sim.InOrder(1)
			p := memmgr.NewPool(sim)
			works := make([]uintptr, n)
			for i := range works {
				works[i] = freePending(t, sim.Simulated, p, 1000, uintptr(1+i%queues))
			}
			before, ended := sim.questions.Load(), 0
			for _, k := range perm(n) {
				end(sim.Simulated, works[k])
				if ended++; ended%1000 == 0 {
					p.Trim(1 << 40)
					require.LessOrEqual(t, active(p), int64(n-ended), "%s, %s: memory of completed work is freed", name, order)
				}
			}
			questions := sim.questions.Load() - before
			require.Zero(t, active(p))
			// Six sweeps over the remaining blocks, and the queries of ticks.
			require.Less(t, questions, int64(20*n), "%s, %s", name, order)
			require.NoError(t, p.Close())
			returned(t, sim.Simulated)
		}
	}
}

func sequence(n int, backwards bool) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
		if backwards {
			all[i] = n - 1 - i
		}
	}
	return all
}

// An event that the driver lost affects its own block alone: requests find later blocks of the queue
// done, Close does not wait for it, and it is reported.
func TestLostEventCostsItsOwnBlock(t *testing.T) {
	for _, queue := range []uintptr{1, 2} {
		sim := newAsked()
		sim.InOrder(1)
		p := memmgr.NewPool(sim)
		failures := memmgr.BackgroundFailures()
		lost := freePending(t, sim.Simulated, p, 1000, queue)
		for range 500 {
			end(sim.Simulated, freePending(t, sim.Simulated, p, 1000, queue))
		}
		var held []memmgr.Block
		for tries := 0; active(p)-int64(len(held)) > 1 && tries < 500; tries++ {
			held = append(held, mustAllocate(t, p, 300<<10)) // looks at a few
		}
		freeAll(p, held)
		require.EqualValues(t, 1, active(p))
		memmgr.Stall(p)
		require.Eventually(t, func() bool { return memmgr.Stalled(p) == 1 }, patience, time.Millisecond)
		require.Eventually(t, func() bool { return memmgr.BackgroundFailures() > failures }, patience, time.Millisecond)
		require.EqualValues(t, 1, active(p), "it is not free")
		require.EqualValues(t, 1, p.Stats().NumStalled)
		require.Zero(t, memmgr.Unstalled(p))
		p.Tick()
		require.Equal(t, failures+1, memmgr.BackgroundFailures(), "reported once")
		require.NoError(t, p.Close(), "no reference is left")
		blocks, _ := sim.InUse()
		require.NotZero(t, blocks)
		end(sim.Simulated, lost) // after all
		returned(t, sim.Simulated)
	}
}

// While Flush or Close waits for all blocks, requests still find them, and no lock is held.
func TestRequestsFindBlocksWhileCloseAndFlushWait(t *testing.T) {
	sim := newAsked()
	p := memmgr.NewPool(sim)
	first := freePending(t, sim.Simulated, p, 1000, 2)
	others := []uintptr{}
	for range 100 {
		others = append(others, freePending(t, sim.Simulated, p, 1000, 2))
	}
	flushed := make(chan struct{})
	go func() {
		memmgr.Flush()
		close(flushed)
	}()
	for _, work := range others {
		end(sim.Simulated, work)
	}
	// Requests reuse them, and they count as reused, while Flush waits for the first one.
	require.Eventually(t, func() bool {
		p.Free(mustAllocate(t, p, 1000))
		return active(p) == 1
	}, patience, time.Millisecond)
	select {
	case <-flushed:
		t.Fatal("Flush did not wait")
	default:
	}
	end(sim.Simulated, first)
	<-flushed
	require.Zero(t, active(p))
	require.NoError(t, p.Close())
	returned(t, sim.Simulated)
}

// observed is the simulated device. It notes how many blocks are pending when a barrier is submitted.
type observed struct {
	*memtest.Simulated
	pool    *memmgr.Pool
	pending []int
}

func (o *observed) Barrier(queue uintptr) (uintptr, error) {
	o.pending = append(o.pending, memmgr.Unstalled(o.pool))
	return o.Simulated.Barrier(queue)
}

// A request without the lock sees exported memory as pending also while its barrier is submitted.
func TestExportedMemoryIsPendingDuringItsBarrier(t *testing.T) {
	sim := &observed{Simulated: memtest.NewSimulated()}
	p := memmgr.NewPool(sim)
	p.Untended()
	sim.pool = p
	b := mustNew(t, p, 5000)
	work := sim.Submit(0)
	b.SetExported()
	b.Release()
	p.Tick()
	require.Equal(t, []int{1}, sim.pending)
	require.Equal(t, 1, memmgr.Unstalled(p))
	end(sim.Simulated, work)
	p.Tick()
	require.Zero(t, memmgr.Unstalled(p))
	require.NoError(t, p.Close())
	returned(t, sim.Simulated)
}

// Exported memory waits for a barrier on its queue, however often the runtime refuses it. A queue
// that refuses does not slow down every request.
func TestRefusedBarriersKeepPoolMemory(t *testing.T) {
	sim := newAsked()
	p := memmgr.NewPool(sim)
	work := sim.Submit(0)
	sim.refuse.Store(true)
	for range 100 {
		b := mustNew(t, p, 5000)
		b.SetExported()
		b.Release()
	}
	for range 1000 {
		p.Free(mustAllocate(t, p, 3000))
	}
	require.EqualValues(t, 100, active(p))
	require.Less(t, sim.barriers.Load(), int64(500), "a barrier asked for at each request")
	sim.refuse.Store(false)
	memmgr.Stall(p)
	require.Eventually(t, func() bool { return active(p) == 100 && sim.Events() > 1 }, patience, time.Millisecond)
	end(sim.Simulated, work)
	require.Eventually(t, func() bool { return active(p) == 0 }, patience, time.Millisecond)
	require.NoError(t, p.Close())
	returned(t, sim.Simulated)
}

// The same for unpooled memory: it must not be freed while a consumer works on it.
func TestRefusedBarriersKeepMemoryOfNoPool(t *testing.T) {
	sim := newAsked()
	for _, pending := range []bool{false, true} {
		failures := memmgr.BackgroundFailures()
		sim.refuse.Store(true)
		work := sim.Submit(0) // the consumer's
		b := mustNew(t, sim, 5000)
		var own uintptr
		if pending {
			own = sim.Submit(3)
			cells.Of(b).SwapPending(sim.CopyEvent(own))
		}
		b.SetExported()
		b.Release()
		memmgr.Flush()
		blocks, _ := sim.InUse()
		require.EqualValues(t, 1, blocks, "freed while its consumer works")
		require.Equal(t, failures+1, memmgr.BackgroundFailures(), "reported once")
		events := sim.Events() // before the keeper can have the barrier
		sim.refuse.Store(false)
		require.Eventually(t, func() bool { return sim.Events() > events }, patience, time.Millisecond, "the barrier")
		blocks, _ = sim.InUse()
		require.EqualValues(t, 1, blocks)
		end(sim.Simulated, work)
		if pending {
			memmgr.ForgetStart()
			memmgr.Flush()
			blocks, _ = sim.InUse()
			require.EqualValues(t, 1, blocks, "freed while its own work goes on")
			end(sim.Simulated, own)
		}
		require.Eventually(t, func() bool { blocks, _ := sim.InUse(); return blocks == 0 }, patience, time.Millisecond)
		returned(t, sim.Simulated)
	}
}

// A lost event of unpooled memory delays no other memory, and the memory is freed if the work ends
// after all.
func TestFlushDoesNotWaitForStalledFrees(t *testing.T) {
	sim := memtest.NewSimulated()
	failures := memmgr.BackgroundFailures()
	lost := freeBehind(t, sim)
	memmgr.ForgetStart()
	memmgr.Flush()
	blocks, _ := sim.InUse()
	require.EqualValues(t, 1, blocks)
	require.Greater(t, memmgr.BackgroundFailures(), failures)
	end(sim, lost)
	require.Eventually(t, func() bool { blocks, _ := sim.InUse(); return blocks == 0 }, patience, time.Millisecond)
	returned(t, sim)
}

// failing is a device of which only a wait reports that work has failed.
type failing struct{ *memtest.Simulated }

func (failing) EventDone(uintptr) bool { return false }

// Flush and Close free memory whose work failed, even if it had stalled before.
func TestFailedWorkEndsWhenItIsAwaited(t *testing.T) {
	sim := failing{memtest.NewSimulated()}
	p := memmgr.NewPool(sim)
	for range 2 {
		for _, stalled := range []bool{false, true} {
			end(sim.Simulated, freePending(t, sim.Simulated, p, 1000, 2))
			b := mustAllocate(t, sim, 100)
			b.Event = sim.Submit(1)
			sim.Complete(b.Event)
			sim.Free(b)
			if stalled {
				memmgr.Stall(p)
				memmgr.ForgetStart()
				require.Eventually(t, func() bool { return memmgr.Stalled(p) == 1 }, patience, time.Millisecond)
			}
			memmgr.Flush()
			require.Zero(t, active(p))
			noEvents(t, sim.Simulated)
		}
	}
	require.NoError(t, p.Close())
	returned(t, sim.Simulated)
}
