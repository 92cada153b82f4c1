//go:build cgo && linux

package syclobj_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestGivenUpWaitsLeaveNothing: after a cancelled wait no goroutine, thread or reference is left, while
// the work continues.
func TestGivenUpWaitsLeaveNothing(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := rt.DefaultQueue()
		m := alloc(t, q, syclobj.USMShared, 4096)
		fake.Hold(true)
		var events []*syclobj.Event
		for i := range 10 {
			events = append(events, testenv.Must(q.Memset(m, byte(i), 1))(t))
		}
		before := syclobj.LiveObjects()
		blocked := fake.Calls("DPCTLEvent_WaitAndThrow")
		for range 20 {
			var all sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			const waits = 200
			for i := range waits {
				all.Go(func() { require.ErrorIs(t, events[i%len(events)].Wait(ctx), context.Canceled) })
			}
			require.Eventually(t, func() bool { return syclobj.LiveObjects().Waiters == waits }, time.Minute, time.Millisecond)
			cancel()
			all.Wait()
		}
		require.Equal(t, before, syclobj.LiveObjects())
		// More threads may start: Go starts one during a long call into C.
		require.Equal(t, blocked, fake.Calls("DPCTLEvent_WaitAndThrow"), "the library's own wait, which holds a thread")
		gone := func() bool {
			all := make([]byte, 1<<20)
			return !strings.Contains(string(all[:runtime.Stack(all, true)]), "syclobj.(*Event).")
		}
		require.Eventually(t, gone, time.Minute, time.Millisecond)
		for _, e := range events {
			require.NoError(t, e.Close())
		}
		fake.ReleaseAll()
		fake.Hold(false)
		require.NoError(t, q.Wait(context.Background()))
	})
}

// With many events, each waiter returns after its own event and not before.
func TestWaitsForManyEvents(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := testenv.Opened(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.OutOfOrder))(t)
		m := alloc(t, q, syclobj.USMShared, 4096)
		fake.Hold(true)
		const n = 300
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ended := make([]chan error, n)
		for i := range ended {
			e := testenv.Must(q.Memset(m, byte(i), 1))(t)
			ended[i] = make(chan error, 1)
			go func() {
				ended[i] <- e.Wait(ctx)
				_ = e.Close()
			}()
		}
		require.Eventually(t, func() bool { return syclobj.LiveObjects().Waiters == n }, time.Minute, time.Millisecond)
		fake.Release(n - 1) // the last first: it is out-of-order
		require.NoError(t, <-ended[n-1])
		require.EqualValues(t, n-1, syclobj.LiveObjects().Waiters)
		// The runtime does not report the state of one event, which must not delay the other waits.
		fake.Fail("DPCTLEvent_GetCommandExecutionStatus", 1)
		require.Eventually(t, func() bool { return fake.Calls("DPCTLEvent_WaitAndThrow") > 0 }, time.Minute, time.Millisecond)
		fake.ReleaseAll()
		for i := range n - 1 {
			require.NoError(t, <-ended[i])
		}
		require.Eventually(t, func() bool { return syclobj.LiveObjects().Waiters == 0 }, time.Minute, time.Millisecond)
		fake.Hold(false)
	})
}

// Waits for an event whose state the runtime does not report leave one goroutine in the runtime's own wait, however
// many of them are given up.
func TestWaitsForAnUnknownStateShareAGoroutine(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := rt.DefaultQueue()
		m := alloc(t, q, syclobj.USMShared, 4096)
		fake.Hold(true)
		e := testenv.Must(q.Memset(m, 1, 1))(t)
		fake.Fail("DPCTLEvent_GetCommandExecutionStatus", -1)
		for range 50 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			require.ErrorIs(t, e.Wait(ctx), context.DeadlineExceeded)
			cancel()
		}
		all := make([]byte, 1<<20)
		require.LessOrEqual(t, strings.Count(string(all[:runtime.Stack(all, true)]), "syclobj.(*Event).settle("), 1)
		fake.Fail("DPCTLEvent_GetCommandExecutionStatus", 0)
		fake.ReleaseAll()
		fake.Hold(false)
		require.NoError(t, e.Wait(t.Context()))
		require.NoError(t, e.Close())
	})
}
