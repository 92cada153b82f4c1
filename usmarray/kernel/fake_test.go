package kernel_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// fakeSource is source for the fake library's compiler.
const fakeSource = "kernel void increment(global int *x) kernel void copy(global const int *x, global int *y) kernel void many(int a, float4 b)"

// fakeMachine opens the fake machine of a child process, with two kernels on a queue.
func fakeMachine(t *testing.T) (rt *syclobj.Runtime, q *syclobj.Queue, increment, many *syclobj.Kernel) {
	t.Helper()
	rt = testenv.Opened(syclobj.Open(syclobj.RequireSYCL()))(t)
	q = rt.DefaultQueue()
	p := build(t, q, fakeSource)
	return rt, q, take(t, p, "increment"), take(t, p, "many")
}

// TestPendingOnTheFakeMachine: reads, other queues and the reuse of memory wait for a pending launch.
func TestPendingOnTheFakeMachine(t *testing.T) {
	sycltest.Child(t, sycltest.OneCPU, func(fake *sycltest.Fake) {
		rt, q, increment, _ := fakeMachine(t)
		other := testenv.Opened(rt.NewQueue(nil, q.Device(), syclobj.OutOfOrder))(t)
		pool := memmgr.NewPool(testsycl.USM(t, q, syclobj.USMDevice))
		x := testenv.Must(usmarray.Zeros(pool, usmarray.Int32, []int{16}))(t)
		require.NoError(t, x.Wait())

		fake.Hold(true)
		require.NoError(t, kernel.Launch(q, increment, kernel.Over(16), kernel.ReadWrite(x)))
		require.NoError(t, kernel.Launch(other, increment, kernel.Over(16), kernel.ReadWrite(x)))
		require.NoError(t, kernel.Launch(q, increment, kernel.Over(16), kernel.ReadWrite(x)))
		require.Equal(t, 3, fake.Pending(), "no barriers between them")
		fake.Release(2)
		require.Equal(t, 3, fake.Pending(), "the last waits for the other queue's, which waits for the first")
		fake.Hold(false)
		fake.ReleaseAll()
		require.Equal(t, "[3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3]", x.String())

		fake.Hold(true)
		require.NoError(t, kernel.Launch(q, increment, kernel.Over(16), kernel.ReadWrite(x)))
		address := x.Pointer()
		x.Release()
		y := testenv.Must(usmarray.New(testsycl.USM(t, q, syclobj.USMDevice), usmarray.Int32, []int{16}))(t)
		require.NotEqual(t, address, y.Pointer())
		y.Release()
		fake.Hold(false)
		fake.ReleaseAll()
		require.NoError(t, pool.Close())
	})
}

// TestNoEventIsLost: several goroutines launch on one array while its events complete; the array finally
// waits for all of them.
func TestNoEventIsLost(t *testing.T) {
	sycltest.Child(t, sycltest.OneCPU, func(fake *sycltest.Fake) {
		rt, q, increment, _ := fakeMachine(t)
		other := testenv.Opened(rt.NewQueue(nil, q.Device(), syclobj.OutOfOrder))(t)
		r := testsycl.USM(t, q, syclobj.USMShared)
		x := testenv.Held(usmarray.Zeros(r, usmarray.Int32, []int{1}))(t)
		for range 200 {
			fake.Hold(true)
			done := make(chan error, 2)
			for _, on := range []*syclobj.Queue{q, other} {
				go func() { done <- kernel.Launch(on, increment, kernel.Over(1), kernel.ReadWrite(x)) }()
			}
			require.NoError(t, errors.Join(<-done, <-done))
			require.True(t, x.Buffer().Pending())
			fake.Hold(false)
			fake.ReleaseAll()
			require.NoError(t, x.Wait())
			require.Zero(t, fake.Pending())
		}
		// On two queues without an order between them an increment may be lost, but none may be
		// pending after the wait.
		require.NotZero(t, testenv.Must(x.At(0))(t))
	})
}

// TestFailuresOnTheFakeMachine: after any failed call no object remains, and the array is unchanged.
func TestFailuresOnTheFakeMachine(t *testing.T) {
	sycltest.Child(t, sycltest.OneCPU, func(fake *sycltest.Fake) {
		rt, q, increment, many := fakeMachine(t)
		other := testenv.Opened(rt.NewQueue(nil, q.Device(), syclobj.InOrder))(t)
		x := testenv.Held(usmarray.Zeros(testsycl.USM(t, q, syclobj.USMShared), usmarray.Int32, []int{16}))(t)
		launch := func(r kernel.Range) error { return kernel.Launch(q, increment, r, kernel.ReadWrite(x)) }
		require.NoError(t, launch(kernel.Over(16)))
		require.NoError(t, x.Wait())
		before := fake.Live()
		for _, c := range []struct {
			function string
			over     kernel.Range
		}{{"DPCTLQueue_SubmitRange", kernel.Over(16)}, {"DPCTLQueue_SubmitNDRange", kernel.Over(16).By(4)}} {
			fake.Fail(c.function, 1)
			err := launch(c.over)
			fake.Fail(c.function, 0)
			require.ErrorIs(t, err, syclobj.ErrFailed, c.function)
			require.ErrorContains(t, err, "the type of argument 0")
			require.False(t, x.Buffer().Pending())
			require.Equal(t, before, fake.Live())
			require.NoError(t, launch(c.over))
			require.NoError(t, x.Wait())
		}

		// If the event cannot be copied, the launch waits for the work.
		for n := 1; n <= 3; n++ {
			fake.Fail("DPCTLEvent_Copy", n)
			require.NoError(t, launch(kernel.Over(16)))
			fake.Fail("DPCTLEvent_Copy", 0)
			require.NoError(t, x.Wait())
			require.Equal(t, before, fake.Live(), "call %d", n)

			fake.Fail("DPCTLEvent_Copy", n)
			event, err := kernel.Start(q, increment, kernel.Over(16), kernel.ReadWrite(x))
			fake.Fail("DPCTLEvent_Copy", 0)
			require.NoError(t, err)
			require.NoError(t, event.Wait(t.Context()))
			event.Close()
			require.NoError(t, x.Wait())
			require.Equal(t, before, fake.Live(), "call %d with an event", n)
		}

		// A failure after the submission is reported once, by the first check from another
		// queue; on the same queue the library reports it at the next wait.
		fake.AsyncError(1, 7)
		require.NoError(t, launch(kernel.Over(16)))
		err := kernel.Launch(other, increment, kernel.Over(16), kernel.ReadWrite(x))
		testenv.Failed(t, err, syclobj.ErrAsync, "earlier work on an array failed")
		require.NoError(t, x.Wait(), "the second launch was submitted and worked")
		require.Equal(t, before, fake.Live())

		// A library without raw arguments.
		err = kernel.Launch(q, many, kernel.Over(1), kernel.Scalar(int32(1)), kernel.Bytes(make([]byte, 16)))
		testenv.Failed(t, err, errors.ErrUnsupported, "argument 1, a value of 16 bytes")
		require.ErrorContains(t, err, "dpctl 0.20")
	})
}

// TestManyArrays launches with more arrays than a Submission stores inline.
func TestManyArrays(t *testing.T) {
	sycltest.Child(t, sycltest.OneCPU, func(fake *sycltest.Fake) {
		rt, q, _, _ := fakeMachine(t)
		text, args := "kernel void wide(int n", []kernel.Arg{kernel.Scalar(int32(1))}
		r := testsycl.USM(t, q, syclobj.USMShared)
		var arrays []*usmarray.Array
		for i := range 50 {
			text += fmt.Sprintf(", global int *x%d", i)
			x := testenv.Held(usmarray.Zeros(r, usmarray.Int32, []int{1}))(t)
			arrays = append(arrays, x)
			args = append(args, kernel.ReadWrite(x))
		}
		wide := take(t, build(t, q, text+")"), "wide")
		free := testenv.Opened(rt.NewQueue(q.Context(), q.Device(), syclobj.OutOfOrder))(t)
		fake.Hold(true)
		for _, on := range []*syclobj.Queue{q, free} {
			require.NoError(t, kernel.Launch(on, wide, kernel.Over(1), args...))
		}
		for _, x := range arrays {
			require.True(t, x.Buffer().Pending())
		}
		fake.Hold(false)
		fake.ReleaseAll()
		for _, x := range arrays {
			require.NoError(t, x.Wait())
		}
		// More arguments than a launch can have.
		tooMany := text
		for i := range 80 {
			tooMany += fmt.Sprintf(", int y%d", i)
		}
		p := build(t, q, tooMany+")")
		require.ErrorIs(t, testenv.ErrorOf(p.Kernel("wide")), syclobj.ErrArgument)
	})
}
