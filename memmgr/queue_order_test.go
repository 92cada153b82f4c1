//go:build cgo && linux

package memmgr_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

const barriers = "DPCTLQueue_SubmitBarrierForEvents"

// The barrier for exported foreign memory is submitted to the queue that the buffer records, even if the
// user closed that queue before. The fake library ends the process when a deleted queue is used.
func TestForeignMemoryKeepsItsQueueForTheBarrier(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
		place := testenv.Must(q.Place(syclobj.USMShared))(t)
		memory := mustNew(t, testsycl.USM(t, q, syclobj.USMShared), 4096)
		ended := false
		b := testenv.Must(memmgr.FromForeign(memory.Data(), 4096, memmgr.ForeignOptions{Place: place, Release: func() { ended = true }}))(t)
		b.UsedOn(q)
		b.SetExported()
		require.NoError(t, q.Close())
		before := fake.Calls(barriers)
		b.Release()
		memmgr.Flush()
		require.True(t, ended)
		require.Equal(t, before+1, fake.Calls(barriers))
		memory.Release()
		place.Release()
	})
}

// A queue of the place that other libraries have seen takes one barrier, also if it is the queue of last use, and no
// event is copied for a single block.
func TestFakeExportedMemoryWaitsForOneBarrier(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		upstream := testsycl.USM(t, rt.DefaultQueue(), syclobj.USMShared)
		pool := newPool(t, upstream)
		for _, r := range []memmgr.Resource{upstream, pool} {
			b := mustNew(t, r, 4096)
			b.SharedOn(nil)
			b.SetExported()
			barriersBefore, copies := fake.Calls(barriers), fake.Calls("DPCTLEvent_Copy")
			b.Release()
			if r == pool {
				pool.Tick()
			}
			require.Equal(t, barriersBefore+1, fake.Calls(barriers))
			require.Equal(t, copies, fake.Calls("DPCTLEvent_Copy"))
		}
		memmgr.Flush()
	})
}

// Memory with work pending on one queue is used on another, in-order queue: immediate reuse on the latter
// is correct only after the pending work.
func TestFakeUseOnAnotherQueueComesAfterPendingWork(t *testing.T) {
	onTwoQueues(t, func(fake *sycltest.Fake, _ *syclobj.Runtime, queues [2]*syclobj.Queue, upstream usmResource) {
		p := newPool(t, upstream)
		for name, note := range map[string]func(memmgr.Buffer, *syclobj.Event){
			"UsedOn": func(b memmgr.Buffer, ev *syclobj.Event) {
				require.NoError(t, b.SetPending(queues[0], ev))
				b.UsedOn(queues[1])
			},
			"SetPending": func(b memmgr.Buffer, ev *syclobj.Event) {
				b.UsedOn(queues[1])
				require.NoError(t, b.SetPending(nil, ev))
			},
		} {
			fake.Hold(true)
			b := mustNew(t, p, 5000)
			ev := testenv.Opened(queues[0].Memset(b.Data(), 1, 5000))(t)
			note(b, ev)
			address := b.Address()
			b.Release()
			again := testenv.Must(memmgr.New(p, memmgr.Request{Size: 5000, Queue: queues[1]}))(t)
			if again.Address() == address {
				next := testenv.Opened(queues[1].Memset(again.Data(), 2, 5000))(t)
				fake.Release(fake.Pending() - 1) // the new work first, if it may
				require.False(t, next.Done(), "%s: two queues at work on one block", name)
			}
			fake.ReleaseAll()
			fake.Hold(false)
			again.Release()
			p.Trim(0)
		}
	})
}

// Work of another library on an out-of-order queue precedes work of the consumer on the same queue.
func TestFakeExportOnAnOutOfOrderQueueComesAfterItsWork(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := testsycl.NewQueue(t, rt, syclobj.OutOfOrder)
		b := mustNew(t, testsycl.USM(t, q, syclobj.USMShared), 4096)
		fake.Hold(true)
		b.SharedOn(q)
		testenv.Opened(q.Memset(b.Data(), 1, 4096))(t)
		require.NoError(t, b.ExportOn(q))
		next := testenv.Opened(q.Memset(b.Data(), 2, 4096))(t)
		fake.Release(fake.Pending() - 1) // the new work first, if it may
		require.False(t, next.Done())
		fake.ReleaseAll()
		fake.Hold(false)
		b.Release()
		memmgr.Flush()
	})
}

// A block of a pool behind another resource is returned without work pending on it, because a Block cannot
// carry it, and counts no queue after its use.
func TestFakePoolBehindALimitReturnsBlocksWithoutPendingWork(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		var queues []int64
		for range 3 {
			q := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
			upstream := memmgr.USM(q, syclobj.USMShared).(usmResource)
			p := memmgr.NewPool(upstream)
			r := memmgr.NewLimit(p, 1<<30)
			fake.Hold(true)
			inFlight := map[unsafe.Pointer]bool{}
			for range 2 {
				b := testenv.Must(memmgr.New(r, memmgr.Request{Size: 5000, Queue: q}))(t)
				require.False(t, inFlight[b.Data()], "the host would not wait for the work on it")
				ev := testenv.Must(q.Memset(b.Data(), 1, 5000))(t)
				require.NoError(t, b.SetPending(q, ev))
				inFlight[b.Data()] = true
				b.Release()
				require.NoError(t, ev.Close())
			}
			fake.ReleaseAll()
			fake.Hold(false)
			require.NoError(t, p.Close())
			require.NoError(t, upstream.Close())
			require.NoError(t, q.Close())
			require.Zero(t, fake.Used(0))
			queues = append(queues, fake.Live().Queues)
		}
		require.Equal(t, queues[0], queues[2], "queues that were not released")
	})
}

// A failure of work is reported by the call that records the next work, because the event of the failed
// work is released then.
func TestFakeFailureOfEarlierWorkIsReported(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := rt.DefaultQueue()
		b := mustNew(t, testsycl.USM(t, q, syclobj.USMShared), 5000)
		fake.AsyncError(1, -5)
		bad := testenv.Opened(q.Memset(b.Data(), 1, 5000))(t)
		require.NoError(t, b.SetPending(q, bad))
		require.Eventually(t, func() bool { return !b.Pending() }, patience, time.Millisecond)
		good := testenv.Opened(q.Memset(b.Data(), 2, 5000))(t)
		require.Error(t, b.SetPending(q, good))
		require.NoError(t, b.Wait())
		b.Release()
	})
}
