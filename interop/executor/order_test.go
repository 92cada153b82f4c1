//go:build cgo && linux

package executor_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// The tests of this file submit slow kernels, in Go or in Python, and read the memory afterwards. Each round
// writes another value, because recycled memory could contain the expected one already.

const (
	orderRounds   = 3
	orderElements = 64
	// spinTurns makes the slow kernel take some milliseconds. No result depends on the time: if the kernel
	// is too fast, a wrong order is only harder to see.
	spinTurns = 1 << 20
)

// slowSource is the kernel of testdata/order.py.
const slowSource = `
kernel void slow(global int *x, int n, int v, uint turns) {
	uint s = turns;
	for (uint i = 0; i < turns; i++) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; }
	for (int i = 0; i < n; i++) x[i] = v + (s == 0);
}
`

// TestOrderOfWork checks the order of device work in Go and in Python on the memory of arguments and results.
func TestOrderOfWork(t *testing.T) { testOrder(t, "TestOrderOfWork", true) }

// TestOrderOfWorkArraysFirst is TestOrderOfWork with arrays that show their queues before dpctl is imported.
func TestOrderOfWorkArraysFirst(t *testing.T) { testOrder(t, "TestOrderOfWorkArraysFirst", false) }

func testOrder(t *testing.T, name string, dpctlFirst bool) {
	if os.Getenv(childEnv) == "" {
		inChild(t, name, "order")
		return
	}
	py, rt := startWithDPNP(t)
	if dpctlFirst {
		testenv.Must(py.Import("dpctl"))(t).Release()
	} else {
		_, err := py.Run(`
import sys, usmbridge
for kind in ("device", "shared", "host"):
    a = usmbridge.zeros(64, dtype="int32", usm_type=kind)
    a.sycl_queue, a.__sycl_usm_array_interface__
assert "dpctl" not in sys.modules`, nil)
		require.NoError(t, err)
	}
	source := testenv.Must(os.ReadFile("testdata/order.py"))(t)
	e := testenv.Must(executor.New(py, executor.Config{Modules: []executor.Module{{Name: "order", Source: string(source)}}}))(t)
	require.NoError(t, testenv.ErrorOf(e.Call(t.Context(), "order:prepare", rt.DefaultDevice().FilterString())))
	o := &order{rt: rt, e: e, probe: testsycl.NewQueue(t, rt, syclobj.InOrder)}
	o.queues = []*syclobj.Queue{rt.DefaultQueue(), testsycl.NewQueue(t, rt, syclobj.InOrder), testsycl.NewQueue(t, rt, syclobj.OutOfOrder)}
	program := testenv.Must(rt.DefaultQueue().BuildOpenCL(slowSource, ""))(t)
	o.slow = testenv.Must(program.Kernel("slow"))(t)
	t.Run("results", o.testResults)
	t.Run("calls", o.testCalls)
	require.NoError(t, e.Close(t.Context()))
	endAfterDPNP(t, name)
}

// startWithDPNP starts Python and SYCL in a process of inChild, for work by dpnp.
func startWithDPNP(t *testing.T) (*python.Interpreter, *syclobj.Runtime) {
	env := testpython.Need(t, "numpy", "dpctl", "dpnp")
	rt, err := syclobj.Open()
	if err != nil || rt.DefaultQueue().IsHost() {
		testenv.Missing(t, fmt.Sprint("no SYCL device: ", err), testenv.SYCL)
	}
	require.NoError(t, pymodule.Register(pymodule.SetRuntime(rt)))
	return testenv.Must(python.Start(python.WithEnvironment(env)))(t), rt
}

// endAfterDPNP ends the process if the test of that name has passed.
func endAfterDPNP(t *testing.T, name string) {
	if !t.Failed() {
		// The race detector ends the process by C's exit. Exit handlers of dpnp's libraries crash then.
		fmt.Println("--- PASS: " + name)
		syscall.Exit(0)
	}
}

// order has the objects that the rounds share.
type order struct {
	rt     *syclobj.Runtime
	e      *executor.Executor
	queues []*syclobj.Queue // for Go's kernels, one for each round
	probe  *syclobj.Queue   // an in-order queue without other work
	slow   *syclobj.Kernel
	value  int32
}

// array returns an array without pending work.
func (o *order) array(t *testing.T, kind syclobj.USMKind) *usmarray.Array {
	r := testenv.Must(memmgr.Default(o.rt.DefaultQueue(), kind))(t)
	a := testenv.Must(usmarray.Full(r, usmarray.Int32, []int{orderElements}, -1))(t)
	require.NoError(t, a.Wait())
	o.value += 7
	return a
}

// raw reports whether the elements have the current value, and waits for nothing before.
func (o *order) raw(t *testing.T, a *usmarray.Array) bool {
	values := make([]int32, orderElements)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*orderElements)
	if a.Buffer().HostReadable() {
		copy(bytes, unsafe.Slice((*byte)(a.Pointer()), len(bytes)))
	} else {
		require.NoError(t, o.probe.Read(bytes, a.Pointer()))
	}
	return o.right(values)
}

func (o *order) right(values []int32) bool {
	for _, v := range values {
		if v != o.value {
			return false
		}
	}
	return len(values) == orderElements
}

// rounds runs the rounds of a subtest and fails if the order of one of them was wrong.
func rounds(t *testing.T, name string, round func(t *testing.T, i int) (right bool)) {
	t.Run(name, func(t *testing.T) {
		buffers, bytes := memmgr.LiveCount()
		wrong := 0
		for i := range orderRounds {
			if !round(t, i) {
				wrong++
			}
		}
		require.Eventually(t, func() bool {
			n, size := memmgr.LiveCount()
			return n <= buffers && size <= bytes
		}, soon, time.Millisecond, "memory is left")
		require.Zerof(t, wrong, "wrong %d of %d", wrong, orderRounds)
	})
}

var orderKinds = []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost}

// testResults launches a kernel in Go on an argument and reads the result of a call that returned its
// memory, and the reverse.
func (o *order) testResults(t *testing.T) {
	reads := map[string]func(t *testing.T, a *usmarray.Array) bool{
		"ToSlice": func(t *testing.T, a *usmarray.Array) bool {
			values := testenv.Must(usmarray.ToSlice[int32](a))(t)
			return o.right(values)
		},
		"Wait": func(t *testing.T, a *usmarray.Array) bool {
			require.NoError(t, a.Wait())
			return o.raw(t, a)
		},
		"call": func(t *testing.T, a *usmarray.Array) bool {
			out := testenv.Must(o.e.Call(t.Context(), "order:itself", a))(t)
			defer out.(*usmarray.Array).Release()
			values := testenv.Must(usmarray.ToSlice[int32](out.(*usmarray.Array)))(t)
			return o.right(values)
		},
	}
	for _, function := range []string{"asarray", "tensor", "ndarray", "streamed", "moved", "itself", "again"} {
		for _, kind := range orderKinds {
			for reverse, direction := range []string{"launch on argument", "launch on result"} {
				for _, read := range []string{"ToSlice", "Wait", "call"} {
					rounds(t, fmt.Sprintf("%s/%v/%s/%s", function, kind, direction, read), func(t *testing.T, i int) bool {
						x := o.array(t, kind)
						defer x.Release()
						y := testenv.Must(o.e.Call(t.Context(), "order:"+function, x))(t).(*usmarray.Array)
						defer y.Release()
						require.Equal(t, x.Pointer(), y.Pointer())
						if reverse == 1 {
							x, y = y, x
						}
						work := testenv.Must(kernel.Start(o.queues[i], o.slow, kernel.Over(1), kernel.ReadWrite(x),
							kernel.Scalar(int32(orderElements)), kernel.Scalar(o.value), kernel.Scalar(uint32(spinTurns))))(t)
						right := reads[read](t, y)
						require.NoError(t, work.Wait(context.Background()))
						return right
					})
				}
			}
		}
	}
}

// testCalls calls functions that leave work pending on the memory of their argument.
func (o *order) testCalls(t *testing.T) {
	for _, c := range []struct {
		function string
		inOrder  bool // for in-order queues only: work of dpnp follows other work of the queue
		noQueue  bool // the function does not use the queue that it gets
		fails    bool
		result   bool // the function returns the memory
		nested   bool // the argument is in containers
	}{
		{function: "stream"},
		{function: "stream_and_keep"},
		{function: "stream_capsule_only"},
		{function: "stream_views"},
		{function: "two_streams"},
		{function: "stream_after_dictionary"},
		{function: "stream_on_shared_tensor", inOrder: true},
		{function: "stream_and_raise", fails: true},
		{function: "stream_and_return", result: true},
		{function: "stream_and_return_tensor", result: true},
		{function: "attribute", noQueue: true},
		{function: "attribute_without_stream", noQueue: true},
		{function: "attribute_of_view", noQueue: true},
		{function: "attribute_and_stream"},
		{function: "dictionary", noQueue: true},
		{function: "memory", noQueue: true},
		{function: "by_asarray", noQueue: true},
		{function: "by_from_dlpack", noQueue: true},
		{function: "in_containers", noQueue: true, nested: true},
	} {
		for _, kind := range orderKinds {
			for _, queue := range []string{"in-order", "out-of-order"} {
				if queue == "out-of-order" && (c.inOrder || c.noQueue) {
					continue
				}
				rounds(t, fmt.Sprintf("%s/%v/%s", c.function, kind, queue), func(t *testing.T, i int) bool {
					a := o.array(t, kind)
					defer a.Release()
					var arg any = a
					if c.nested {
						arg = map[string]any{"y": []any{a}}
					}
					out, err := o.e.Call(t.Context(), "order:"+c.function, arg, queue, o.value)
					read := a
					if c.fails {
						require.ErrorIs(t, err, python.KeyError)
					} else {
						require.NoError(t, err)
					}
					if c.result {
						read = out.(*usmarray.Array)
						defer read.Release()
					}
					right := o.raw(t, read)
					// ends the work of the round and drops the objects that it kept
					require.NoError(t, testenv.ErrorOf(o.e.Call(t.Context(), "order:finish")))
					return right
				})
			}
		}
	}
}
