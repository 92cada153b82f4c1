package memmgr_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// locked is a device whose barriers must not be pending when the call that submitted them returns.
type locked struct {
	*memtest.Simulated
	barriers, waits, failures atomic.Int32
	pend, owns                atomic.Bool // owns: the calling thread computes
	pause                     time.Duration
	computes                  sync.Mutex // the lock of computations
}

func (d *locked) BarriersPend() bool { return d.pend.Load() }

func (d *locked) Barrier(queue uintptr) (uintptr, error) {
	d.barriers.Add(1)
	return d.Simulated.Barrier(queue)
}

func (d *locked) TryWaitQueues(queues []uintptr) (busy bool, err error) {
	if len(queues) != 1 || queues[0] != 7 {
		return false, errors.New("the queues are not those of the memory")
	}
	if !d.owns.Load() {
		if !d.computes.TryLock() {
			time.Sleep(time.Millisecond)
			return true, nil
		}
		defer d.computes.Unlock()
	}
	time.Sleep(d.pause)
	d.waits.Add(1)
	if d.failures.Add(-1) >= 0 {
		return false, errors.New("the wait fails")
	}
	return false, nil
}

// release releases memory that other libraries were shown with queue 7.
func (d *locked) release(b memmgr.Buffer) {
	b.Inside().SetQueue(7)
	b.SetExported()
	b.Release()
}

func used(d *locked) int64 {
	_, bytes := d.InUse()
	return bytes
}

func requireEmpty(t *testing.T, d *locked) {
	t.Helper()
	require.Zero(t, used(d))
}

// Where barriers must not be pending, memory that other libraries were shown comes back by calls that wait, and by nothing
// in the background.
func TestShownMemoryWaitsForACallThatWaits(t *testing.T) {
	const size = 8 << 20
	for name, call := range map[string]func(t *testing.T, d *locked, p *memmgr.Pool){
		"growth": func(t *testing.T, _ *locked, p *memmgr.Pool) {
			b := testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t)
			require.EqualValues(t, 1, p.Stats().Segment.Current, "the pool has grown")
			b.Release()
		},
		"growth with a context": func(t *testing.T, _ *locked, p *memmgr.Pool) {
			b := testenv.Must(memmgr.New(p, memmgr.Request{Size: size, Context: t.Context()}))(t)
			require.EqualValues(t, 1, p.Stats().Segment.Current, "the pool has grown")
			b.Release()
		},
		"trim":  func(_ *testing.T, _ *locked, p *memmgr.Pool) { p.Trim(0) },
		"flush": func(*testing.T, *locked, *memmgr.Pool) { memmgr.Flush() },
		"all":   func(*testing.T, *locked, *memmgr.Pool) { memmgr.TrimAll() },
		"close": func(t *testing.T, _ *locked, p *memmgr.Pool) { require.NoError(t, p.Close()) },
		"a failure, then trim": func(t *testing.T, d *locked, p *memmgr.Pool) {
			d.failures.Store(1)
			p.Trim(0)
			require.EqualValues(t, 1, p.Stats().Active.Current)
			p.Trim(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &locked{Simulated: memtest.NewSimulated()}
			p := memmgr.NewPool(d, memmgr.WithSegment(size))
			d.release(testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t))
			for range 3 {
				p.Tick()
			}
			require.EqualValues(t, 1, p.Stats().Active.Current)
			require.Zero(t, d.waits.Load())
			call(t, d, p)
			require.Zero(t, p.Stats().Active.Current)
			require.Zero(t, d.barriers.Load())
			require.NotZero(t, d.waits.Load())
			require.NoError(t, p.Close())
			requireEmpty(t, d)
		})
	}
}

// A request that settles memory waits for computations, which can need memory themselves.
func TestComputationsAllocateWhileOthersSettle(t *testing.T) {
	const size = 8 << 20
	d := &locked{Simulated: memtest.NewSimulated()}
	p := memmgr.NewPool(d, memmgr.WithSegment(size))
	d.release(testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t))
	d.computes.Lock()
	var trims errgroup.Group
	for range 3 {
		trims.Go(func() error { p.Trim(0); return nil })
	}
	require.Never(t, func() bool { return p.Stats().Active.Current == 0 }, 20*time.Millisecond, time.Millisecond)
	d.owns.Store(true)
	b := testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t) // in the computation
	d.owns.Store(false)
	b.Release()
	d.computes.Unlock()
	require.NoError(t, trims.Wait())
	require.Zero(t, p.Stats().Active.Current)
	require.NoError(t, p.Close())
	requireEmpty(t, d)
}

// answering is a device that can say whether its queues are empty.
type answering struct {
	*locked
	busy atomic.Bool
}

func (d *answering) QueueEmpty(queue uintptr) bool { return queue == 7 && !d.busy.Load() }

// If the queues are known to be empty, such memory comes back without a wait.
func TestShownMemoryComesBackFromEmptyQueues(t *testing.T) {
	const size = 8 << 20
	d := &answering{locked: &locked{Simulated: memtest.NewSimulated()}}
	p := memmgr.NewPool(d, memmgr.WithSegment(size))
	for range 2 {
		d.busy.Store(true)
		d.release(testenv.Must(memmgr.New(p, memmgr.Request{Size: size / 2}))(t))
		d.release(testenv.Must(memmgr.New(p, memmgr.Request{Size: size / 4}))(t))
		p.Tick()
		require.EqualValues(t, 2, p.Stats().Active.Current, "the queue has work")
		d.busy.Store(false)
		p.Tick()
		require.Zero(t, p.Stats().Active.Current)
	}
	require.Zero(t, d.barriers.Load()+d.waits.Load())
	require.NoError(t, p.Close())
	requireEmpty(t, d.locked)
}

// A limit, a tenant and a waiting request get such memory before they refuse or wait.
func TestShownMemoryServesRefusedRequests(t *testing.T) {
	const size = 1 << 20
	for name, refused := range map[string]func(p, sibling *memmgr.Pool) (memmgr.Resource, context.Context){
		"limit":   func(p, _ *memmgr.Pool) (memmgr.Resource, context.Context) { return p, nil },
		"sibling": func(_, sibling *memmgr.Pool) (memmgr.Resource, context.Context) { return sibling, nil },
		"waiting": func(_, sibling *memmgr.Pool) (memmgr.Resource, context.Context) {
			return sibling, context.WithoutCancel(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &locked{Simulated: memtest.NewSimulated()}
			limit := memmgr.NewLimit(d, size)
			p, sibling := memmgr.NewPool(limit, memmgr.WithSegment(size)), memmgr.NewPool(limit, memmgr.WithSegment(size))
			d.release(testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t))
			r, ctx := refused(p, sibling)
			b := testenv.Must(memmgr.New(r, memmgr.Request{Size: size, Context: ctx}))(t)
			require.Zero(t, d.barriers.Load())
			b.Release()
			require.NoError(t, p.Close())
			require.NoError(t, sibling.Close())
			requireEmpty(t, d)
		})
	}
	t.Run("tenant", func(t *testing.T) {
		d := &locked{Simulated: memtest.NewSimulated()}
		p := memmgr.NewPool(d)
		tenant := testenv.Must(p.NewTenant("a", memmgr.TenantOptions{Hard: size}))(t)
		d.release(testenv.Must(memmgr.New(tenant, memmgr.Request{Size: size}))(t))
		testenv.Must(memmgr.New(tenant, memmgr.Request{Size: size}))(t).Release()
		require.Zero(t, d.barriers.Load())
		require.NoError(t, p.Close())
	})
}

// If the wait always fails, a request that needs such memory is refused.
func TestShownMemoryWhoseWaitFails(t *testing.T) {
	const size = 1 << 20
	d := &locked{Simulated: memtest.NewSimulated()}
	p := memmgr.NewPool(memmgr.NewLimit(d, size), memmgr.WithSegment(size))
	d.release(testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t))
	d.failures.Store(1 << 20)
	_, err := memmgr.New(p, memmgr.Request{Size: size})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	d.failures.Store(0)
	require.NoError(t, p.Close())
	requireEmpty(t, d)
}

// While one request waits for such memory, others get it too, or wait for that request.
func TestShownMemoryServesConcurrentRequests(t *testing.T) {
	const size = 1 << 20
	d := &locked{Simulated: memtest.NewSimulated(), pause: 20 * time.Millisecond}
	p := memmgr.NewPool(memmgr.NewLimit(d, 2*size), memmgr.WithSegment(size))
	x, y := testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t), testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t)
	d.release(x)
	d.release(y)
	var group errgroup.Group
	for range 2 {
		group.Go(func() error {
			b, err := memmgr.New(p, memmgr.Request{Size: size})
			b.Release()
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.NoError(t, p.Close())
	requireEmpty(t, d)
}

// Memory that was freed before Python has started, or is free when Python ends, comes back too.
func TestShownMemoryAcrossTheStartAndEndOfPython(t *testing.T) {
	const size = 1 << 20
	for _, before := range []bool{true, false} {
		d := &locked{Simulated: memtest.NewSimulated()}
		p := memmgr.NewPool(memmgr.NewLimit(d, size), memmgr.WithSegment(size))
		d.pend.Store(before)
		d.release(testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t))
		d.pend.Store(!before)
		p.Tick()
		testenv.Must(memmgr.New(p, memmgr.Request{Size: size}))(t).Release()
		require.Zero(t, memmgr.Unstalled(p))
		require.NoError(t, p.Close())
		requireEmpty(t, d)
	}
}

// Memory in no pool comes back before the next allocation in no pool, and by TrimAll.
func TestShownMemoryInNoPool(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, d *locked){
		"allocation": func(t *testing.T, d *locked) { testenv.Must(memmgr.New(d, memmgr.Request{Size: 100}))(t).Release() },
		"all":        func(*testing.T, *locked) { memmgr.TrimAll() },
	} {
		t.Run(name, func(t *testing.T) {
			d := &locked{Simulated: memtest.NewSimulated()}
			d.release(testenv.Must(memmgr.New(d, memmgr.Request{Size: 1000}))(t))
			time.Sleep(10 * time.Millisecond) // for the goroutine that frees memory, which must not
			require.NotZero(t, used(d))
			call(t, d)
			memmgr.Flush()
			requireEmpty(t, d)
			require.Zero(t, d.barriers.Load())
		})
	}
}
