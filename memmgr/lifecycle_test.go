package memmgr_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// returned waits until all memory of the simulated device is free.
func returned(t testing.TB, sim *memtest.Simulated) {
	t.Helper()
	require.Eventually(t, func() bool {
		blocks, _ := sim.InUse()
		return blocks == 0 && sim.Events() == 0
	}, patience, 5*time.Millisecond, "the memory never went back")
}

// noEvents waits until all events of the simulated device are released: a waiter releases its event a
// moment after it reports the end.
func noEvents(t testing.TB, sim *memtest.Simulated, what ...any) {
	t.Helper()
	require.Eventually(t, func() bool { return sim.Events() == 0 }, patience, time.Millisecond, what...)
}

// A buffer that outlives its pool is freed when its work ends, without further calls of the pool.
func TestPendingMemoryOfAClosedPoolGoesBack(t *testing.T) {
	sim := memtest.NewSimulated()
	p := memmgr.NewPool(sim)
	b := mustAllocate(t, p, 5000)
	testenv.As[*memmgr.LeakError](t, p.Close())
	work := sim.Submit(1)
	b.Event = sim.CopyEvent(work)
	p.Free(b)
	blocks, _ := sim.InUse()
	require.EqualValues(t, 1, blocks, "the device still works on it")
	sim.Complete(work)
	sim.ReleaseEvent(work)
	returned(t, sim)
}

func TestExportedMemoryOfAClosedPoolGoesBack(t *testing.T) {
	sim := memtest.NewSimulated()
	p := memmgr.NewPool(sim)
	b := mustNew(t, p, 20<<20)
	testenv.As[*memmgr.LeakError](t, p.Close())
	work := sim.Submit(0)
	b.SetExported()
	b.Release()
	sim.Complete(work)
	sim.ReleaseEvent(work)
	returned(t, sim)
	require.NotContains(t, memmgr.Pools(), p)
}

// Close is called while another goroutine grows the pool: that request fails with ErrClosed, and the
// segment is freed.
func TestCloseWhileThePoolGrows(t *testing.T) {
	sim := memtest.NewSimulated()
	u := &upstream{Resource: sim}
	p := memmgr.NewPool(u)
	u.setAsk(func(memmgr.Request) error { return p.Close() })
	for _, size := range []uintptr{100, 20 << 20} {
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: size})), memmgr.ErrClosed)
	}
	returned(t, sim)
}

// A request whose context ends while another request asks the upstream fails with a typed error that
// matches both the context's error and ErrOutOfMemory.
func TestContextEndsWhileAnotherRequestGrowsThePool(t *testing.T) {
	u := &upstream{Resource: memtest.NewSimulated()}
	p := newPool(t, u)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	u.setAsk(func(memmgr.Request) error {
		_, err := memmgr.New(p, memmgr.Request{Size: 20 << 20, Context: ctx})
		testenv.As[*memmgr.OutOfMemoryError](t, err)
		require.ErrorIs(t, err, context.Canceled)
		return nil
	})
	mustNew(t, p, 100).Release()
}

// The peak number of buffers is correct when many small buffers are freed while a few large ones are
// allocated on one processor, with equal amounts of bytes.
func TestPeakCountSurvivesUnevenTraffic(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer memmgr.RecordStacks(memmgr.StacksRecorded())
	memmgr.RecordStacks(0)
	_, p := simulatedPool(t, memmgr.WithDecay(0), memmgr.WithCache(1<<30))
	var large []memmgr.Block
	const each = 8
	classes := 10
	if instrumented { // which takes 30 s with all classes
		classes = 3
	}
	small := 65_000 * classes
	size := func(i int) uintptr { return 2<<20 - uintptr(i/each)*(32<<10) }
	blocks := make([]memmgr.Block, small)
	for i := range blocks {
		blocks[i] = mustAllocate(t, p, 256)
	}
	for i := range classes * each {
		large = append(large, mustAllocate(t, p, size(i)))
	}
	freeAll(p, large)
	require.EqualValues(t, small, p.Stats().Allocation.Current)
	for i := range large {
		large[i] = mustAllocate(t, p, size(i))
		n := size(i) / 256
		freeAll(p, blocks[:n])
		blocks = blocks[n:]
	}
	s := p.Stats()
	require.LessOrEqual(t, s.Allocation.Peak, int64(small+len(large)))
	require.EqualValues(t, len(large)+len(blocks), s.Allocation.Current)
	freeAll(p, append(large, blocks...))
}

// Each alignment is honoured or refused, however large.
func TestHugeAlignmentIsHonouredOrRefused(t *testing.T) {
	_, p := simulatedPool(t)
	for shift := 8; shift < 62; shift++ {
		b, err := p.Allocate(memmgr.Request{Size: 20 << 20, Align: 1 << shift})
		if err != nil {
			require.True(t, shift > 32, "alignment 1<<%d: %v", shift, err)
			continue
		}
		require.Zero(t, b.Address&(1<<shift-1), "alignment 1<<%d", shift)
		p.Free(b)
	}
}
