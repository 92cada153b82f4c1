//go:build cgo && linux

package executor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// embedded is the Python of this process. There can be only one.
var embedded struct {
	once    sync.Once
	missing error // why there is no suitable Python; the tests skip
	py      *python.Interpreter
	rt      *syclobj.Runtime
	err     error
}

// models is the Python code of the tests.
const models = `
import threading, time
import numpy

def add(a, b=1): return a + b
def double(x):
    v = numpy.asarray(x)
    v *= 2
def doubled(x, note=None): return {"y": numpy.asarray(x) * 2, "note": note, "same": x}
def fail(): raise KeyError("no such model")
def odd(): return [numpy.zeros(3), object()]
def forever(begun):
    begun()
    while True: pass
def sleep(begun, seconds):
    begun()
    time.sleep(seconds)
def wait(begun, event):
    begun()
    event.wait()
def hold(begun, lock):      # cannot be interrupted: the wait is in C
    begun()
    with lock: pass
def thread(): return threading.get_ident()

inside, most = 0, 0
def alone(n=200):
    global inside, most
    inside += 1
    most = max(most, inside)
    for _ in range(n): time.sleep(0)    # gives the GIL up
    inside -= 1
    return most
class Group:
    wait = staticmethod(wait)
    class Inner:
        @staticmethod
        def f(): return "inner"
`

// start embeds Python with the module usmbridge and the functions of the tests. They remain until the
// process ends.
func start(t testing.TB) (*python.Interpreter, memmgr.Resource) {
	t.Helper()
	embedded.once.Do(func() {
		// Do not call t.Skip here: later tests would find no interpreter and no error.
		var env *python.Environment
		if env, embedded.missing = testpython.Find("numpy"); embedded.missing != nil {
			return
		}
		if embedded.rt, embedded.err = syclobj.Open(syclobj.HostOnly()); embedded.err != nil {
			return
		}
		if embedded.err = pymodule.Register(pymodule.SetRuntime(embedded.rt)); embedded.err != nil {
			return
		}
		if embedded.py, embedded.err = python.Start(python.WithEnvironment(env)); embedded.err != nil {
			return
		}
		var m *python.Object
		if m, embedded.err = embedded.py.Module("models", models); embedded.err == nil {
			m.Release()
		}
	})
	if embedded.missing != nil {
		testenv.Missing(t, embedded.missing, testenv.Python, testenv.Peers)
	}
	require.NoError(t, embedded.err)
	r := testenv.Must(memmgr.Default(embedded.rt.HostQueue(), syclobj.USMUnknown))(t)
	return embedded.py, r
}

// open returns an executor that is closed at the end of the test. Then it checks that no Python object
// and no memory is left.
func open(t testing.TB, c executor.Config) (*executor.Executor, memmgr.Resource) {
	t.Helper()
	py, r := start(t)
	objects, _ := python.ObjectCounts()
	buffers, _ := memmgr.LiveCount()
	e := testenv.Must(executor.New(py, c))(t)
	t.Cleanup(func() {
		require.NoError(t, e.Close(context.Background())) // t.Context has ended here
		require.Eventually(t, func() bool {
			now, _ := python.ObjectCounts()
			live, _ := memmgr.LiveCount()
			return now <= objects && live <= buffers
		}, soon, time.Millisecond, "objects or memory left")
	})
	return e, r
}
