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
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// If the library has no memory for a second reference of a pending event, the operation waits for
// the work, and does not hold the lock of the event meanwhile. If the work fails, it or the next wait returns this.
func TestFakeEventsWithoutACopyAreWaitedFor(t *testing.T) {
	onTwoQueues(t, func(fake *sycltest.Fake, rt *syclobj.Runtime, queues [2]*syclobj.Queue, _ memmgr.Resource) {
		upstream := testsycl.USM(t, queues[0], syclobj.USMShared)
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
			ev := testenv.Opened(queues[0].Memset(b.Data(), 1, 4096))(t)
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
	})
}

// TestFakeKeptFailureIsReturnedOnce: a failure that Python could not pass on reaches the next wait, and the next
// user of the memory has no part in it.
func TestFakeKeptFailureIsReturnedOnce(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		p := newPool(t, testsycl.USM(t, rt.DefaultQueue(), syclobj.USMShared))
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
	})
}
