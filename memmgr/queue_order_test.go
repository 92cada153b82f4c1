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
		fake.Hold(true) // the barrier does not end at once
		b.Release()
		require.False(t, ended)
		fake.Hold(false)
		fake.ReleaseAll()
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
