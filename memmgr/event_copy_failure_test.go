//go:build cgo && linux

package memmgr_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// If the library has no memory for a second reference of a pending event, the operation waits for
// the work, and does not hold the lock of the event meanwhile. If the work fails, it or the next wait returns this.
func TestFakeEventsWithoutACopyAreWaitedFor(t *testing.T) {
	fake, rt := onFake(t, sycltest.OneCPU)
	if fake == nil {
		return
	}
	var queues []*syclobj.Queue
	for range 2 {
		q := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
		queues = append(queues, q)
	}
	upstream := memmgr.USM(queues[0], syclobj.USMShared).(usmResource)
	type use struct {
		name string
		do   func(memmgr.Buffer) error
	}
	check := func(c use, code int) {
		t.Helper()
		b := mustNew(t, upstream, 4096)
		fake.Hold(true)
		if code != 0 {
			fake.AsyncError(1, code)
		}
		ev, err := queues[0].Memset(b.Data(), 1, 4096)
		require.NoError(t, err)
		require.NoError(t, b.SetPending(queues[0], ev))
		copies := fake.Calls("DPCTLEvent_Copy")
		fake.Fail("DPCTLEvent_Copy", -1)
		type outcome struct {
			err  error
			done bool
		}
		over := make(chan outcome, 1)
		go func() {
			err := c.do(b)
			over <- outcome{err, ev.Done()}
		}()
		require.Eventually(t, func() bool { return fake.Calls("DPCTLEvent_Copy") > copies }, time.Minute, time.Millisecond, c.name)
		held := make(chan bool)
		go func() {
			b.Inside().HoldPending()
			b.Inside().LetPending()
			close(held)
		}()
		select {
		case <-held:
		case <-time.After(time.Minute):
			t.Errorf("%s waits under the lock", c.name)
		}
		fake.ReleaseAll()
		got := <-over
		fake.Fail("DPCTLEvent_Copy", 0)
		fake.Hold(false)
		if err := errors.Join(got.err, b.Wait()); code != 0 {
			require.ErrorIs(t, err, syclobj.ErrAsync, c.name)
		} else {
			require.NoError(t, err, c.name)
			require.True(t, got.done, "%s went on while work was pending", c.name)
		}
		require.NoError(t, b.Wait(), c.name)
		require.NoError(t, ev.Close())
		b.Release()
	}
	for _, c := range []use{
		{"Wait", memmgr.Buffer.Wait},
		{"WaitContext", func(b memmgr.Buffer) error { return b.WaitContext(t.Context()) }},
		{"Bytes", func(b memmgr.Buffer) error { _, err := b.Bytes(); return err }},
		{"UsedOn", func(b memmgr.Buffer) error { b.UsedOn(queues[1]); return nil }},
		{"PendingEvent", func(b memmgr.Buffer) error { b.PendingEvent(); return nil }},
		{"Pending", func(b memmgr.Buffer) error { b.Pending(); return nil }},
		{"Submission", func(b memmgr.Buffer) error {
			var s memmgr.Submission
			s.Begin(queues[1], []memmgr.Buffer{b})
			return s.End(nil)
		}},
	} {
		check(c, 0)
		check(c, -5)
	}
	memmgr.Flush()
	require.NoError(t, upstream.Close())
	for _, q := range queues {
		require.NoError(t, q.Close())
	}
	require.Zero(t, fake.Used(0))
}

// TestFakeKeptFailureIsReturnedOnce: a failure that Python could not pass on reaches the next wait, and the next
// user of the memory has no part in it.
func TestFakeKeptFailureIsReturnedOnce(t *testing.T) {
	fake, rt := onFake(t, sycltest.OneCPU)
	if fake == nil {
		return
	}
	upstream := memmgr.USM(rt.DefaultQueue(), syclobj.USMShared)
	p := memmgr.NewPool(upstream)
	for _, wait := range []func(memmgr.Buffer) error{
		memmgr.Buffer.Wait,
		func(b memmgr.Buffer) error { return b.WaitContext(t.Context()) },
		func(b memmgr.Buffer) error { _, err := b.Bytes(); return err },
	} {
		b := mustNew(t, p, 4096)
		cells.Of(b).SetFlags(owner.Failed)
		require.ErrorIs(t, wait(b), syclobj.ErrAsync)
		require.NoError(t, wait(b))
		cells.Of(b).SetFlags(owner.Failed)
		b.Release()
	}
	b := mustNew(t, p, 4096)
	require.NoError(t, b.Wait())
	b.Release()
	require.NoError(t, p.Close())
	require.NoError(t, memmgr.Close(upstream))
}
