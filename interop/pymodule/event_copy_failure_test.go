//go:build cgo && linux

package pymodule_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
	"github.com/usmbridge/usmbridge/usmarray"
)

// If the library has no memory for a second reference of a pending event, exports wait for the work. Meanwhile they
// hold neither the lock of the event, for which other threads spin with the GIL, nor the GIL, and they report the
// failure of the work.
func TestFakeEventsWithoutACopyAreWaitedForByPython(t *testing.T) {
	if !onFake(t, sycltest.OneCPU) {
		return
	}
	fake := sycltest.Attach(t)
	py, rt := start(t)
	q := rt.DefaultQueue()
	for _, export := range []string{
		"x.__sycl_usm_array_interface__", "x.__dlpack__()", "x.__dlpack__(stream=x.sycl_queue)", "x.__arrow_c_device_array__()",
	} {
		for _, code := range []int{0, -5} {
			a := testenv.Must(usmarray.Zeros(memmgr.USM(q, syclobj.USMDevice), dlpack.Uint8, []int{4096}))(t)
			require.NoError(t, a.Wait())
			x := testenv.Must(pymodule.ToPython(a))(t)

			fake.Hold(true)
			if code != 0 {
				fake.AsyncError(1, code)
			}
			ev := testenv.Must(q.Memset(a.Buffer().Data(), 1, 4096))(t)
			require.NoError(t, a.Buffer().SetPending(q, ev))
			fake.Hold(false)
			ev.Close()
			copies := fake.Calls("DPCTLEvent_Copy")
			fake.Fail("DPCTLEvent_Copy", -1)
			results := make(chan string, 2)
			for range cap(results) {
				go func() {
					out, err := py.Run("failure = ''\ntry: "+export+"\nexcept RuntimeError as e: failure = str(e)", python.Vars{"x": x}, "failure")
					if err != nil {
						results <- err.Error()
						return
					}
					results <- out["failure"].(string)
				}()
			}
			require.Eventually(t, func() bool { return fake.Calls("DPCTLEvent_Copy") > copies+5 }, time.Minute, time.Millisecond, "%s waits under the lock", export)
			require.NoError(t, testenv.ErrorOf(py.Run("pass", nil)))
			require.Empty(t, results, export)
			fake.ReleaseAll()
			failures := []string{<-results, <-results}
			fake.Fail("DPCTLEvent_Copy", 0)
			slices.Sort(failures)
			require.Empty(t, failures[0], export)
			if code != 0 {
				require.Contains(t, failures[1], "work on the device failed after its submission", export)
			} else {
				require.Empty(t, failures[1], export)
			}
			x.Release()
			a.Release()
		}
	}
	memmgr.Flush() // the memory was shown to Python
	require.Zero(t, fake.Live().Events)
}

// If there is no memory for the references of the queues with work on an array, an operation that waits for them or
// orders work after them raises MemoryError. It must not forget the queues.
func TestFakeQueuesWithoutACopyAreNotForgotten(t *testing.T) {
	if !onFake(t, sycltest.OneCPU) {
		return
	}
	fake := sycltest.Attach(t)
	py, rt := start(t)
	q := rt.DefaultQueue()
	for _, use := range []string{"x.tolist()", "x[0].item()", "x.copy()", "memoryview(x)", "x.__dlpack__(stream=x.sycl_queue)"} {
		a := testenv.Must(usmarray.Zeros(memmgr.USM(q, syclobj.USMShared), dlpack.Uint8, []int{4096}))(t)
		other := testenv.Must(rt.NewQueue(nil, q.Device(), 0))(t)
		x := testenv.Must(pymodule.ToPython(a))(t)
		a.Buffer().SharedOn(other)
		run := "failure = ''\ntry: " + use + "\nexcept (MemoryError, BufferError) as e: failure = str(e)"
		fake.Fail("DPCTLQueue_Copy", -1)
		out := testenv.Must(py.Run(run, python.Vars{"x": x}, "failure"))(t)
		fake.Fail("DPCTLQueue_Copy", 0)
		require.Contains(t, out["failure"], "memory for another reference of a queue", use)
		out = testenv.Must(py.Run(run, python.Vars{"x": x}, "failure"))(t)
		require.Empty(t, out["failure"], use)
		x.Release()
		a.Release()
		require.NoError(t, other.Close())
	}
}
