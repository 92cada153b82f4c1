//go:build cgo && linux

package workers_test

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// orderModel has the functions of package executor's test of the same name.
const orderModel = "../executor/testdata/order.py"

// probeQueue returns an in-order queue of the default context without other work.
func probeQueue(t *testing.T) *syclobj.Queue {
	t.Helper()
	rt, _ := testsycl.Need(t)
	return testsycl.NewQueue(t, rt, syclobj.InOrder)
}

// allEqual reports whether the elements have a value, and waits for nothing before it reads them.
func allEqual(t *testing.T, probe *syclobj.Queue, a *usmarray.Array, want int32) bool {
	values := make([]int32, a.Size())
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 4*len(values))
	if a.Buffer().HostReadable() {
		copy(bytes, unsafe.Slice((*byte)(a.Pointer()), len(bytes)))
	} else {
		require.NoError(t, probe.Read(bytes, a.Pointer()))
	}
	for _, v := range values {
		if v != want {
			return false
		}
	}
	return true
}

// TestOrderOfWork checks that Call waits for device work that a function left pending on the memory of its
// argument. A worker makes its calls with an executor, so the test of package executor tries all ways in which work
// is left; here are one for each way in which a call ends. Each round writes another value, because recycled memory
// could contain the expected one already.
func TestOrderOfWork(t *testing.T) {
	const orderRounds, elements = 3, 64
	testpython.Need(t, "dpctl", "dpnp")
	source := testenv.Must(os.ReadFile(orderModel))(t)
	probe := probeQueue(t)
	q := testsycl.Queue(t)
	value := int32(0)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/order.py", source, 0o600))
	p := open(t, workers.Config{SYCL: q, Path: []string{dir}})
	require.NoError(t, testenv.ErrorOf(p.Call(limited(t), "order:prepare", q.Device().FilterString())))
	for _, c := range []struct {
		function string
		queues   []string
		fails    bool
		result   bool // the function returns the memory
	}{
		{function: "stream", queues: []string{"in-order", "out-of-order"}},
		{function: "stream_and_raise", queues: []string{"in-order"}, fails: true},
		{function: "stream_and_return", queues: []string{"in-order", "out-of-order"}, result: true},
		{function: "stream_and_return_tensor", queues: []string{"in-order", "out-of-order"}, result: true},
		{function: "attribute", queues: []string{"own"}},
		{function: "dictionary", queues: []string{"own"}},
	} {
		for _, kind := range []syclobj.USMKind{syclobj.USMShared, syclobj.USMHost, syclobj.USMDevice} {
			for _, queue := range c.queues {
				t.Run(fmt.Sprintf("%s/%v/%s", c.function, kind, queue), func(t *testing.T) {
					r, err := segment.Default(q, kind, segment.PeersWrite)
					if err != nil {
						t.Skipf("no segments of USM here: %v", err)
					}
					buffers, bytes := memmgr.LiveCount()
					wrong := 0
					for range orderRounds {
						value += 7
						a := testenv.Must(usmarray.Full(r, usmarray.Int32, []int{elements}, -1))(t)
						require.NoError(t, a.Wait())
						out, err := p.Call(limited(t), "order:"+c.function, a, queue, value)
						if c.fails {
							require.ErrorIs(t, err, python.KeyError)
						} else {
							require.NoError(t, err)
						}
						right := allEqual(t, probe, a, value)
						if c.result {
							result := out.(*usmarray.Array)
							right = allEqual(t, probe, result, value) && right
							result.Release()
						}
						if !right {
							wrong++
						}
						require.NoError(t, testenv.ErrorOf(p.Call(limited(t), "order:finish")))
						a.Release()
					}
					eventually(t, func() bool {
						n, size := memmgr.LiveCount()
						return n <= buffers && size <= bytes
					}, "memory is left")
					require.Zerof(t, wrong, "wrong %d of %d", wrong, orderRounds)
				})
			}
		}
	}
}
