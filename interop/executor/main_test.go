//go:build cgo && linux

package executor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// required reports whether the environment requires the peers of the tests, so that a missing one is
// an error.
func required() bool {
	return os.Getenv("USMBRIDGE_REQUIRE_PYTHON") == "1" || os.Getenv("USMBRIDGE_REQUIRE_PEERS") == "1"
}

// environment returns a Python with the given modules. Without one it skips the test, or
// fails it if the environment requires one.
func environment(t testing.TB, modules ...string) *python.Environment {
	t.Helper()
	env, err := findPython(modules...)
	if err != nil {
		unavailable(t, err)
	}
	return env
}

// unavailable skips the test, or fails it if the environment requires Python and its peers.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if required() {
		t.Fatal(err)
	}
	t.Skip(err)
}

// findPython looks for a Python with the given modules: the active one, or the
// repository's own environment.
func findPython(modules ...string) (*python.Environment, error) {
	var tried, candidates []string
	if env, err := python.Find(); err == nil {
		candidates = append(candidates, env.Executable)
	}
	if venv, err := filepath.Abs("../../.venv"); err == nil {
		candidates = append(candidates, filepath.Join(venv, "bin", "python"))
	}
	for _, exe := range candidates {
		env, err := python.Inspect(exe)
		if err != nil {
			tried = append(tried, err.Error())
			continue
		}
		out, err := exec.Command(env.Executable, "-c", "import "+strings.Join(append(modules, "sys"), ",")).CombinedOutput()
		if err == nil {
			return env, nil
		}
		tried = append(tried, env.Executable+": "+strings.TrimSpace(string(out)))
	}
	return nil, fmt.Errorf("no Python with %s: %s", strings.Join(modules, ", "), strings.Join(tried, "; "))
}

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
		if env, embedded.missing = findPython("numpy"); embedded.missing != nil {
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
		unavailable(t, embedded.missing)
	}
	require.NoError(t, embedded.err)
	r, err := memmgr.Default(embedded.rt.HostQueue(), syclobj.USMUnknown)
	require.NoError(t, err)
	return embedded.py, r
}

// open returns an executor that is closed at the end of the test. Then it checks that no Python object
// and no memory is left.
func open(t testing.TB, c executor.Config) (*executor.Executor, memmgr.Resource) {
	t.Helper()
	py, r := start(t)
	objects, _ := python.ObjectCounts()
	buffers, _ := memmgr.LiveCount()
	e, err := executor.New(py, c)
	require.NoError(t, err)
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
