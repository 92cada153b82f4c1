//go:build cgo && linux

package pymodule_test

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestFirstCallsOfCompiledFunctions checks that an @njit function accepts Arrays in its first call, if Python has
// not imported usmbridge before and several threads call at the same time. Each case runs in its own process.
func TestFirstCallsOfCompiledFunctions(t *testing.T) {
	cases := map[string]func(*testing.T, *python.Interpreter){
		"numba imported":       firstCallsAtOnce,
		"numba being imported": firstCallDuringImport,
		"numba compiling":      firstCallDuringCompilation,
	}
	if name := os.Getenv(childEnv); name != "" {
		require.NoError(t, pymodule.Register())
		py := testenv.Must(python.Start())(t)
		cases[name](t, py)
		return
	}
	testpython.Need(t, "numba")
	for name := range cases {
		t.Run(name, func(t *testing.T) { require.NotContains(t, inProcess(t, name), "Warning") })
	}
}

// pauseImports defines pause(prefix, until): the first import of a module whose name starts
// with prefix waits until until() is true. waiting() counts the other threads that wait for
// an import.
const pauseImports = `
import sys, threading, time
assert "usmbridge" not in sys.modules

def waiting():
    code = [f.f_code for t, f in sys._current_frames().items() if t != threading.get_ident()]
    return sum((c.co_filename, c.co_name) == ("<frozen importlib._bootstrap>", "acquire") for c in code)

def pause(prefix, until):
    paused = threading.Event()
    def hook(event, args):
        if event == "import" and args[0].startswith(prefix) and not paused.is_set():
            paused.set()
            while not until():
                time.sleep(0.001)
    sys.addaudithook(hook)
    return paused
`

// firstCallsAtOnce calls the function on several threads while one of them imports the package.
func firstCallsAtOnce(t *testing.T, py *python.Interpreter) {
	const threads = 4
	out := testenv.Must(py.Run(pauseImports+`
import numba
total, done = numba.njit(lambda a: a.shape[0] + a.sum()), []

def call(a):
    try:
        return total(a)
    finally:
        done.append(a)

pause("usmbridge.", lambda: len(done) + waiting() >= threads - 1)`, python.Vars{"threads": threads}, "call"))(t)
	call := out["call"].(*python.Object)
	var calls sync.WaitGroup
	for range threads {
		calls.Go(func() { assertTotal(t, call) })
	}
	calls.Wait()
}

// firstCallDuringImport imports the package while another thread imports Numba. It calls a ufunc, which types its
// arguments without loading Numba's entry points first.
func firstCallDuringImport(t *testing.T, py *python.Interpreter) {
	out := testenv.Must(py.Run(pauseImports+`
def imported():
    ours = sys.modules.get("usmbridge")
    return ours is not None and not getattr(ours.__spec__, "_initializing", False)

paused = pause("numba.", lambda: waiting() or imported())

def call(a):
    thread.join()
    import numba
    return numba.vectorize(lambda x: x + 1)(a).sum()

thread = threading.Thread(target=__import__, args=["numba"])
thread.start()
paused.wait()`, nil, "call"))(t)
	assertTotal(t, out["call"].(*python.Object))
}

// firstCallDuringCompilation imports the package while another thread compiles the first function of the process,
// for which Numba loads the package's entry point.
func firstCallDuringCompilation(t *testing.T, py *python.Interpreter) {
	out := testenv.Must(py.Run(pauseImports+`
import numba
call = numba.njit(lambda a: a.shape[0] + a.sum())
thread = threading.Thread(target=numba.njit(lambda: 0))

def compiling():
    if not thread.ident:
        thread.start()
    return waiting() or not thread.is_alive()

pause("usmbridge.", compiling)`, nil, "call"))(t)
	assertTotal(t, out["call"].(*python.Object))
}

// assertTotal checks that f returns 5 for the array [1, 2]: its length plus its sum.
func assertTotal(t *testing.T, f *python.Object) {
	a, err := usmarray.FromPinnedSlice([]float64{1, 2}, nil)
	if !assert.NoError(t, err) {
		return
	}
	defer a.Release()
	o, err := pymodule.ToPython(a)
	if !assert.NoError(t, err) {
		return
	}
	defer o.Release()
	r, err := f.Call(o)
	if !assert.NoError(t, err) {
		return
	}
	defer r.Release()
	v, err := r.Float()
	assert.NoError(t, err)
	assert.EqualValues(t, 5, v)
}
