package syclobj_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestAfterLastRuntime: objects that the user owns outlive the last Runtime and still work; operations
// that need the table of devices return ErrClosed.
func TestAfterLastRuntime(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(*sycltest.Fake) {
		rt := testenv.Must(syclobj.Open(syclobj.RequireSYCL()))(t)
		gpu := rt.RootDevices()[0]
		tiles := testenv.Must(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNUMA}))(t)
		ctx := testenv.Must(rt.NewContext(gpu))(t)
		q := testenv.Must(rt.NewQueue(ctx, gpu, syclobj.OutOfOrder))(t)
		p := testenv.Must(q.Alloc(syclobj.USMShared, 8, 0))(t)
		require.NoError(t, rt.Close())

		require.NoError(t, testenv.Must(q.Memset(p, 7, 8))(t).Wait(context.Background()))
		require.EqualValues(t, 7, *(*byte)(p))
		for what, err := range map[string]error{
			"devices of a context": testenv.ErrorOf(ctx.Devices()),
			"parts of a part":      testenv.ErrorOf(tiles[0].SubDevices(syclobj.Partition{Units: 1})),
			"a new place":          testenv.ErrorOf(q.Place(syclobj.USMDevice)),
			"memory in it":         testenv.ErrorOf(q.Alloc(syclobj.USMDevice, 8, 0)),
		} {
			require.ErrorIs(t, err, syclobj.ErrClosed, what)
			require.NotErrorIs(t, err, syclobj.ErrNoSYCL, what)
		}
		require.NoError(t, syclobj.Free(p))
		require.NoError(t, q.Close())
		require.NoError(t, ctx.Close())
		for _, d := range tiles {
			require.NoError(t, d.Close())
		}
		require.Zero(t, syclobj.LiveObjects())
	})
}

// TestLookupsWhileClosing looks up root devices while the last Runtime closes: no call may use a deleted
// reference, for which the fake library ends the process.
func TestLookupsWhileClosing(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(*sycltest.Fake) {
		first := openReal(t)
		ctx := testenv.Opened(first.NewContext(first.RootDevices()[1]))(t)
		place := testenv.Held(defaultQueue(t, first.RootDevices()[1]).Place(syclobj.USMShared))(t)
		made := testenv.Opened(first.NewQueue(nil, first.RootDevices()[0], syclobj.OutOfOrder))(t)
		require.NoError(t, first.Close())
		closed := func(err error) {
			if err != nil {
				require.ErrorIs(t, err, syclobj.ErrClosed)
			}
		}
		for i := range 300 {
			rt := testenv.Must(syclobj.Open())(t)
			var all sync.WaitGroup
			for _, look := range []func() error{
				func() error { return testenv.ErrorOf(rt.Device(fmt.Sprintf("level_zero:gpu:%d,cpu", i%2))) },
				func() error { return testenv.ErrorOf(place.Queue()) },
				func() error { return testenv.ErrorOf(place.Context()) },
				func() error { return testenv.ErrorOf(ctx.Devices()) },
				func() error {
					q, err := rt.QueueFromRef(made.Ref())
					if err == nil {
						err = q.Close()
					}
					return err
				},
			} {
				all.Go(func() {
					for range 3 {
						if err := look(); err != nil {
							require.ErrorIs(t, err, syclobj.ErrClosed)
							return
						}
					}
				})
			}
			all.Go(func() { closed(rt.Close()) })
			all.Wait()
		}
	})
}

// TestOpenWithBrokenDrivers: without an explicit library and without RequireSYCL, Open uses the host
// backend if the devices cannot be listed.
func TestOpenWithBrokenDrivers(t *testing.T) {
	sycltest.Child(t, sycltest.TwoGPUs, func(fake *sycltest.Fake) {
		require.NoError(t, os.Unsetenv(syclobj.EnvLibrary)) // it is adopted, as the process holds it
		fake.Fail("DPCTLDeviceMgr_GetDevices", 1)
		rt := testenv.Must(syclobj.Open())(t)
		require.False(t, rt.HasSYCL())
		require.Nil(t, rt.Library())
		require.ErrorIs(t, rt.SYCLError(), syclobj.ErrNoSYCL)
		testenv.Failed(t, rt.SYCLError(), syclobj.ErrFailed, "its devices cannot be used")
		require.Same(t, rt.HostQueue().Device(), rt.DefaultDevice())
		require.NoError(t, rt.Close())
		fake.Fail("DPCTLDeviceMgr_GetDevices", 1)
		require.ErrorIs(t, testenv.ErrorOf(syclobj.Open(syclobj.RequireSYCL())), syclobj.ErrFailed)
		rt = openReal(t)
		require.Len(t, rt.RootDevices(), 3, "nothing stands in the way of the next")
	})
}

// Every wait for a failed event returns the failure.
func TestEventFailureStays(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := rt.DefaultQueue()
		p := alloc(t, q, syclobj.USMShared, 8)
		background := context.Background()
		cancellable, cancel := context.WithCancel(background)
		defer cancel()
		failing := func(q *syclobj.Queue) *syclobj.Event {
			fake.AsyncError(1, -5)
			return testenv.Must(q.Memset(p, 0, 8))(t)
		}
		profiled := testenv.Opened(rt.NewQueue(nil, q.Device(), syclobj.Profiling))(t)
		for name, first := range map[string]func(*syclobj.Event) error{
			"waited for":              func(e *syclobj.Event) error { return e.Wait(background) },
			"waited for, cancellable": func(e *syclobj.Event) error { return e.Wait(cancellable) },
			"found done":              func(e *syclobj.Event) error { require.True(t, e.Done()); return e.Wait(background) },
			"found done, then a copy": func(e *syclobj.Event) error {
				require.True(t, e.Done())
				copied := e.Copy()
				defer copied.Close()
				return copied.Wait(background)
			},
			"as the host's dependency":  func(e *syclobj.Event) error { return testenv.ErrorOf(rt.HostQueue().Barrier(e)) },
			"of a host copy after Done": func(e *syclobj.Event) error { e.Done(); return rt.HostQueue().Write(p, []byte{1}, e) },
		} {
			for _, q := range []*syclobj.Queue{q, profiled} {
				e := failing(q)
				require.ErrorIs(t, first(e), syclobj.ErrAsync, name)
				require.ErrorIs(t, e.Wait(background), syclobj.ErrAsync, name)
				require.ErrorIs(t, e.Wait(cancellable), syclobj.ErrAsync, name)
				require.True(t, e.Done())
				copied := e.Copy()
				require.ErrorIs(t, copied.Wait(background), syclobj.ErrAsync, name)
				require.NoError(t, copied.Close())
				require.NoError(t, e.Close())
				require.ErrorIs(t, e.Wait(background), syclobj.ErrAsync, "known before it was closed")
			}
		}
		// All concurrent waits return the failure.
		fake.Hold(true)
		e := failing(q)
		var all sync.WaitGroup
		for i := range 8 {
			ctx := background
			if i%2 == 0 {
				ctx = cancellable
			}
			all.Go(func() { require.ErrorIs(t, e.Wait(ctx), syclobj.ErrAsync) })
		}
		time.Sleep(5 * time.Millisecond)
		fake.Hold(false)
		fake.ReleaseAll()
		all.Wait()
		require.Eventually(t, func() bool { return syclobj.LiveObjects().Waiters == 0 }, time.Minute, time.Millisecond)
	})
}

// TestClosedEvent: an event that was closed before its completion cannot order other work.
func TestClosedEvent(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := rt.DefaultQueue()
		p := alloc(t, q, syclobj.USMShared, 8)
		fake.Hold(true)
		e := testenv.Must(q.Memset(p, 1, 8))(t)
		require.NoError(t, e.Close())
		require.True(t, e.Done(), "nothing left to ask")
		require.Nil(t, e.Ref())
		require.ErrorIs(t, e.Wait(context.Background()), syclobj.ErrClosed)
		require.ErrorIs(t, e.Copy().Wait(context.Background()), syclobj.ErrClosed)
		testenv.Failed(t, testenv.ErrorOf(q.Memset(p, 2, 8, nil, e)), syclobj.ErrClosed, "dependency 1")
		require.ErrorIs(t, testenv.ErrorOf(rt.HostQueue().Barrier(e)), syclobj.ErrClosed)
		fake.ReleaseAll()
		fake.Hold(false)
		require.NoError(t, q.Wait(context.Background()))

		// An event that was closed after it was known to be complete is ignored like nil.
		e = testenv.Must(q.Memset(p, 3, 8))(t)
		require.NoError(t, e.Wait(context.Background()))
		require.NoError(t, e.Close())
		require.NoError(t, e.Wait(context.Background()))
		require.NoError(t, testenv.Must(q.Barrier(e))(t).Close())
	})
}

// TestEventCopyFails: if an event cannot be copied, incomplete work is never reported as complete.
func TestEventCopyFails(t *testing.T) {
	sycltest.Child(t, sycltest.OneCPU, func(fake *sycltest.Fake) {
		q := openReal(t).DefaultQueue()
		p := alloc(t, q, syclobj.USMShared, 8)
		fake.Hold(true)
		e := testenv.Must(q.Memset(p, 9, 8))(t)
		fake.Fail("DPCTLEvent_Copy", 1)
		time.AfterFunc(10*time.Millisecond, fake.ReleaseAll)
		copied := e.Copy()
		require.True(t, copied.Done())
		require.EqualValues(t, 9, *(*byte)(p), "the copy is complete only after the work")
		require.NoError(t, copied.Wait(context.Background()))
		require.NoError(t, copied.Close())
		require.NoError(t, copied.Close())
	})
}

// TestFiltersRemembered: filter strings are cached, up to a limit.
func TestFiltersRemembered(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		const selector = "DPCTLFilterSelector_Create"
		text := func(i int) string { return fmt.Sprintf("cuda:%d,cpu", i) }
		for i := range 1000 {
			_, err := rt.Device(text(i))
			require.NoError(t, err)
		}
		calls := fake.Calls(selector)
		require.NoError(t, testenv.ErrorOf(rt.Device(text(0))))
		require.Equal(t, calls, fake.Calls(selector), "one seen before needs no selector")
		for i := range 1000 {
			require.NoError(t, testenv.ErrorOf(rt.Device(text(i))))
		}
		require.Greater(t, fake.Calls(selector), calls+500, "and most of a thousand were not kept")
	})
}

// TestClosedHostQueue: a closed host queue returns ErrClosed like any other.
func TestClosedHostQueue(t *testing.T) {
	rt := openHost(t)
	q := testenv.Must(rt.NewQueue(nil, rt.HostQueue().Device(), syclobj.OutOfOrder))(t)
	p := testenv.Must(q.Alloc(syclobj.USMShared, 8, 0))(t)
	require.NoError(t, q.Close())
	require.NoError(t, q.Close())
	for _, err := range []error{
		testenv.ErrorOf(q.Alloc(syclobj.USMShared, 8, 0)), testenv.ErrorOf(q.Memset(p, 1, 8)), testenv.ErrorOf(q.Barrier()), q.Wait(context.Background()),
		q.Write(p, []byte{1}), testenv.ErrorOf(q.Memcpy(p, unsafe.Add(p, 4), 4)), testenv.ErrorOf(q.Fill(p, []byte{1}, 1)),
		testenv.ErrorOf(q.Prefetch(p, 8)), testenv.ErrorOf(q.Place(syclobj.USMShared)),
	} {
		require.ErrorIs(t, err, syclobj.ErrClosed)
	}
	require.NoError(t, syclobj.Free(p), "memory outlives its queue")
	require.NoError(t, rt.HostQueue().Wait(context.Background()), "the Runtime's own is never closed")
}
