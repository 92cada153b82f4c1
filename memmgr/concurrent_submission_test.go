//go:build cgo && linux

package memmgr_test

import (
	"runtime"
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

// onTwoQueues runs f on a fake machine with two in-order queues and a resource.
func onTwoQueues(t *testing.T, f func(*sycltest.Fake, *syclobj.Runtime, [2]*syclobj.Queue, memmgr.Resource)) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		var queues [2]*syclobj.Queue
		for i := range queues {
			queues[i] = testenv.Opened(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
		}
		f(fake, rt, queues, testsycl.USM(t, queues[0], syclobj.USMDevice))
	})
}

func newBuffer(t *testing.T, r memmgr.Resource) memmgr.Buffer { return mustNew(t, r, 64) }

func fill(t *testing.T, q *syclobj.Queue, b memmgr.Buffer) *syclobj.Event {
	return testenv.Opened(q.Memset(b.Data(), 1, 64))(t)
}

// owned returns a reference of the event that Submission.End takes over.
func owned(t *testing.T, r memmgr.Resource, ev *syclobj.Event) unsafe.Pointer {
	b := newBuffer(t, r)
	defer b.Release()
	require.NoError(t, b.SetPending(nil, ev))
	ref := b.PendingEvent()
	b.ClearPending()
	return ref
}

// letOthersRun gives other goroutines enough time to reach the point where they block.
func letOthersRun() {
	for range 20 {
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
}

// A submission that begins while the event of another one is being stored in the buffer either
// starts after that event or makes the buffer wait for both.
func TestFakeConcurrentSubmissionsBothStayPending(t *testing.T) {
	onTwoQueues(t, func(fake *sycltest.Fake, _ *syclobj.Runtime, queues [2]*syclobj.Queue, r memmgr.Resource) {
		b := newBuffer(t, r)
		fake.Hold(true)
		first := fill(t, queues[0], b)
		ref := owned(t, r, first)
		var s memmgr.Submission
		require.Empty(t, s.Begin(queues[0], []memmgr.Buffer{b}))
		b.Inside().HoldPending() // between whatever the first End does before and after
		ended := make(chan error, 1)
		copies := fake.Calls("DPCTLEvent_Copy")
		go func() { ended <- s.End(ref) }()
		require.Eventually(t, func() bool { return fake.Calls("DPCTLEvent_Copy") > copies }, patience, time.Millisecond)
		letOthersRun()
		var other memmgr.Submission
		require.Empty(t, other.Begin(queues[1], []memmgr.Buffer{b}))
		b.Inside().LetPending()
		require.NoError(t, <-ended)
		second := fill(t, queues[1], b)
		require.NoError(t, other.End(owned(t, r, second)))
		fake.Release(1)
		require.Eventually(t, second.Done, patience, time.Millisecond)
		require.False(t, first.Done())
		require.True(t, b.Pending(), "the first work goes on")
		fake.Hold(false)
		fake.ReleaseAll()
		require.NoError(t, b.Wait())
		b.Release()
	})
}

// While the queue of last use changes, work on the new queue is not assumed to be ordered after
// the pending work.
func TestFakeQueueIsRecordedAfterItsEvent(t *testing.T) {
	onTwoQueues(t, func(fake *sycltest.Fake, _ *syclobj.Runtime, queues [2]*syclobj.Queue, r memmgr.Resource) {
		// The runtime refuses barriers, so each change waits for the pending work.
		for name, change := range map[string]func(memmgr.Buffer, *syclobj.Event) error{
			"UsedOn": func(b memmgr.Buffer, _ *syclobj.Event) error {
				b.UsedOn(queues[1])
				return nil
			},
			"SetPending without an event": func(b memmgr.Buffer, _ *syclobj.Event) error {
				return b.SetPending(queues[1], nil)
			},
			"SetPending": func(b memmgr.Buffer, ev *syclobj.Event) error {
				return b.SetPending(queues[1], ev)
			},
			"Submission": func(b memmgr.Buffer, ev *syclobj.Event) error {
				var s memmgr.Submission
				s.Begin(queues[1], []memmgr.Buffer{b})
				// An event that was recorded meanwhile is joined.
				if err := b.SetPending(queues[0], ev); err != nil {
					return err
				}
				fake.Fail(barriers, 1)
				return s.End(b.PendingEvent())
			},
		} {
			b, scratch := newBuffer(t, r), newBuffer(t, r)
			fake.Hold(true)
			work := fill(t, queues[0], b)
			require.NoError(t, b.SetPending(queues[0], work))
			next := fill(t, queues[1], scratch)
			if name == "Submission" {
				next = fill(t, queues[0], scratch)
			} else {
				fake.Fail(barriers, 1)
			}
			asked := fake.Calls(barriers)
			changed := make(chan error, 1)
			go func() { changed <- change(b, next) }()
			require.Eventually(t, func() bool { return fake.Calls(barriers) > asked }, patience, time.Millisecond)
			letOthersRun()
			var s memmgr.Submission
			after := s.Begin(queues[1], []memmgr.Buffer{b})
			require.True(t, b.Pending(), name)
			require.Len(t, after, 1, "%s: the new queue's work would not wait for the old one's", name)
			require.NoError(t, s.End(nil))
			fake.Hold(false)
			fake.ReleaseAll()
			require.NoError(t, <-changed)
			require.NoError(t, b.Wait())
			require.NotNil(t, b.Queue(), name)
			b.Release()
			scratch.Release()
		}
	})
}

// An event of an unknown queue is stored in the buffer only after the queue of last use waits for
// it.
func TestFakeEventOfAnUnknownQueueGetsABarrier(t *testing.T) {
	onTwoQueues(t, func(fake *sycltest.Fake, _ *syclobj.Runtime, queues [2]*syclobj.Queue, r memmgr.Resource) {
		b := newBuffer(t, r)
		b.UsedOn(queues[1])
		fake.Hold(true)
		work := fill(t, queues[0], b)
		fake.Fail(barriers, 1)
		asked := fake.Calls(barriers)
		set := make(chan error, 1)
		go func() { set <- b.SetPending(nil, work) }()
		require.Eventually(t, func() bool { return fake.Calls(barriers) > asked }, patience, time.Millisecond)
		letOthersRun()
		var s memmgr.Submission
		after := s.Begin(queues[1], []memmgr.Buffer{b})
		require.False(t, b.Pending() && len(after) == 0, "pending, and nothing that later work waits for")
		require.NoError(t, s.End(nil))
		fake.Hold(false)
		fake.ReleaseAll()
		require.NoError(t, <-set)
		require.NoError(t, b.Wait())
		b.Release()
	})
}

// A queue that is closed during its lookup is not used any more: the fake library ends the process
// when a deleted queue is used.
func TestFakeQueueClosedWhileItIsRecorded(t *testing.T) {
	onTwoQueues(t, func(fake *sycltest.Fake, rt *syclobj.Runtime, _ [2]*syclobj.Queue, r memmgr.Resource) {
		for _, use := range []func(memmgr.Buffer, *syclobj.Queue){
			func(b memmgr.Buffer, q *syclobj.Queue) { b.UsedOn(q) },
			func(b memmgr.Buffer, q *syclobj.Queue) { require.ErrorIs(t, b.SetPending(q, nil), syclobj.ErrClosed) },
			func(b memmgr.Buffer, q *syclobj.Queue) {
				var s memmgr.Submission
				require.Empty(t, s.Begin(q, []memmgr.Buffer{b}))
				require.NoError(t, s.End(nil))
			},
		} {
			q := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
			b := newBuffer(t, r)
			let := memmgr.HoldQueues()
			done := make(chan struct{})
			go func() {
				defer close(done)
				use(b, q)
			}()
			letOthersRun()
			require.NoError(t, q.Close())
			let()
			<-done
			require.Nil(t, b.Queue())
			b.Release()
		}
	})
}

// Work whose queue was closed after the submission is still pending, and is ordered before work on
// the queue of last use.
func TestFakeEventOfAClosedQueueIsPending(t *testing.T) {
	onTwoQueues(t, func(fake *sycltest.Fake, rt *syclobj.Runtime, queues [2]*syclobj.Queue, r memmgr.Resource) {
		q := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
		b := newBuffer(t, r)
		b.UsedOn(queues[1])
		fake.Hold(true)
		work := fill(t, q, b)
		require.NoError(t, q.Close())
		asked := fake.Calls(barriers)
		require.ErrorIs(t, b.SetPending(q, work), syclobj.ErrClosed)
		require.True(t, b.Pending())
		require.Equal(t, asked+1, fake.Calls(barriers), "the queue of last use waits for it")
		fake.Hold(false)
		fake.ReleaseAll()
		require.NoError(t, b.Wait())
		b.Release()
	})
}
