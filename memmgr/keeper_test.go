package memmgr_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// freeBehind frees a block of the device with work pending that has not ended.
func freeBehind(t *testing.T, sim *memtest.Simulated) (work uintptr) {
	b := mustAllocate(t, sim, 100)
	work = sim.Submit(1)
	b.Event = sim.CopyEvent(work)
	sim.Free(b)
	return work
}

func end(sim *memtest.Simulated, work uintptr) {
	sim.Complete(work)
	sim.ReleaseEvent(work)
}

// Memory is freed when its own work ends, regardless of other work.
func TestFreesDoNotWaitForOneAnother(t *testing.T) {
	sim := memtest.NewSimulated()
	first, second := freeBehind(t, sim), freeBehind(t, sim)
	end(sim, second)
	require.Eventually(t, func() bool {
		blocks, _ := sim.InUse()
		return blocks == 1
	}, patience, time.Millisecond)
	end(sim, first)
	memmgr.Flush()
	returned(t, sim)
}

// uncopied is a device that gives no second references of events on request.
type uncopied struct {
	*memtest.Simulated
	refuse atomic.Bool
	asked  atomic.Int64
}

func (u *uncopied) CopyEvent(event uintptr) uintptr {
	if u.refuse.Load() {
		u.asked.Add(1)
		return 0
	}
	return u.Simulated.CopyEvent(event)
}

// If the event of a block cannot be copied, Flush polls it. The block has not stalled.
func TestFlushWaitsForAnEventWithoutACopy(t *testing.T) {
	t.Run("unpooled", func(t *testing.T) {
		flushWithoutCopies(t, func(u *uncopied, work uintptr) (freed func()) {
			over := make(chan struct{})
			memmgr.FreeAfter(memmgr.Block{Event: u.CopyEvent(work)}, u, func(memmgr.Block) { close(over) })
			return func() { <-over }
		})
	})
	t.Run("pooled", func(t *testing.T) {
		flushWithoutCopies(t, func(u *uncopied, work uintptr) (freed func()) {
			p := memmgr.NewPool(u)
			b := mustAllocate(t, p, 1000)
			b.Event = u.CopyEvent(work)
			p.Free(b)
			return func() {
				require.Zero(t, p.Stats().NumStalled)
				require.Zero(t, active(p))
				require.NoError(t, p.Close())
			}
		})
	})
}

func flushWithoutCopies(t *testing.T, free func(u *uncopied, work uintptr) (freed func())) {
	u := &uncopied{Simulated: memtest.NewSimulated()}
	work := u.Submit(1)
	failures := memmgr.BackgroundFailures()
	freed := free(u, work)
	u.refuse.Store(true)
	flushed := make(chan struct{})
	go func() {
		memmgr.Flush()
		close(flushed)
	}()
	require.Eventually(t, func() bool { return u.asked.Load() > 0 }, patience, time.Millisecond)
	select {
	case <-flushed:
		t.Error("Flush returned while work of less than stallTime was pending")
	case <-time.After(20 * time.Millisecond):
	}
	end(u.Simulated, work)
	<-flushed
	freed()
	require.Equal(t, failures, memmgr.BackgroundFailures(), "the block was reported as stalled")
}

func goroutines() string {
	all := make([]byte, 1<<20)
	return string(all[:runtime.Stack(all, true)])
}

// Without pools and pending frees there is no goroutine. After StopBackground there is none
// either, and Flush processes memory that waits for a device.
func TestBackgroundEnds(t *testing.T) {
	if _, child := memmgr.Child(t); !child {
		return
	}
	gone := func() bool { return !strings.Contains(goroutines(), "memmgr.(*keeperState).loop") }
	sim := memtest.NewSimulated()
	require.True(t, gone(), "merely importing the package started something")
	work := freeBehind(t, sim)
	p := memmgr.NewPool(sim)
	// Before its first run the stack of the goroutine does not show the function.
	require.Eventually(t, func() bool { return !gone() }, patience, time.Millisecond)
	end(sim, work)
	require.NoError(t, p.Close())
	require.Eventually(t, gone, patience, time.Millisecond)

	work = freeBehind(t, sim)
	p = memmgr.NewPool(sim)
	diag.StopBackground()
	require.True(t, gone())
	end(sim, work)
	end(sim, freeBehind(t, sim))
	require.True(t, gone(), "started again")
	blocks, _ := sim.InUse()
	require.EqualValues(t, 2, blocks)
	diag.StopBackground() // may be called again
	require.NoError(t, p.Close())
	memmgr.Flush()
	returned(t, sim)
}
