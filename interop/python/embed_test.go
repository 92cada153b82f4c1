//go:build linux && cgo

package python_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/linkage/linkagetest"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/python/internal/testmod"
)

// TestEmbedded runs TestInChild in a new process for each Python.
func TestEmbedded(t *testing.T) {
	for _, env := range somePythons(t, "no Python can be embedded: the embedding tests were not run") {
		t.Run(env.Version.String()+" "+filepath.Base(env.Prefix), func(t *testing.T) {
			runChild(t, env.Executable, "^TestInChild$")
		})
	}
}

// somePythons returns the Pythons to test with, at least one. It skips the test in a child of an
// embedding test, and with the given reason if there is no Python.
func somePythons(t *testing.T, without string) []*python.Environment {
	t.Helper()
	if os.Getenv(embedEnv) != "" {
		t.Skip("this process is one of the children; TestInChild has the tests")
	}
	list := pythons(t)
	if len(list) == 0 {
		testenv.Missing(t, without, testenv.Python)
	}
	return list
}

// runChild runs a test of this binary in a process that embeds the given Python, and
// returns its output.
func runChild(t *testing.T, executable, test string, env ...string) string {
	t.Helper()
	args := []string{"-test.run=" + test, "-test.v", "-test.timeout=5m"}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), embedEnv+"="+executable)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "child of %s:\n%s", executable, out)
	require.Containsf(t, string(out), "--- PASS: "+strings.Trim(test, "^$"), "the child ran no test:\n%s", out)
	if testing.Verbose() {
		t.Logf("%s", out)
	}
	return string(out)
}

// TestExamples runs the examples in a new process, because one of them closes the
// interpreter.
func TestExamples(t *testing.T) {
	if os.Getenv(embedEnv) != "" {
		t.Skip("this process is a child for embedding")
	}
	env, err := python.Find()
	if err != nil {
		testenv.Missing(t, err.Error(), testenv.Python)
	}
	out := runChild(t, env.Executable, "^TestExamplesInChild$", python.EnvVar+"="+env.Executable)
	for _, line := range []string{
		"[0.5 1 1.5]",
		"true python: ValueError: ValueError: 3 is odd",
	} {
		require.Contains(t, out, line+"\n")
	}
}

// TestExamplesInChild is the child of TestExamples.
func TestExamplesInChild(t *testing.T) {
	if os.Getenv(embedEnv) == "" {
		t.Skip("run by TestExamples in a process of its own")
	}
	ExampleInterpreter_Func()
	ExampleObject_Method()
	ExampleInterpreter_WithoutGIL()
	ExampleStart()
}

// TestInChild runs the tests that embed Python. It is the child of TestEmbedded.
func TestInChild(t *testing.T) {
	exe := os.Getenv(embedEnv)
	if exe == "" {
		t.Skip("run by TestEmbedded in a process per Python")
	}
	testNilInterpreter(t)
	require.False(t, python.Alive())
	require.NoError(t, python.RegisterModule(testmod.Name, testmod.Init()))
	require.NoError(t, python.RegisterModule(testmod.Name, testmod.Init()), "the same registration again is a conflict")

	env := testenv.Must(python.Inspect(exe))(t)
	py := testenv.Must(python.Start(python.WithEnvironment(env)))(t)
	for _, c := range []struct {
		name string
		f    func(*testing.T, *python.Interpreter)
	}{
		{"Start", testStart}, {"Environment", testEnvironment}, {"Convert", testConvert},
		{"ConvertErrors", testConvertErrors}, {"CyclesToGo", testCyclesToGo}, {"CyclesToPython", testCyclesToPython},
		{"Depth", testDepth}, {"LongInts", testLongInts}, {"As", testAs}, {"Objects", testObjects},
		{"Calls", testCalls}, {"Iteration", testIteration}, {"Run", testRun}, {"Module", testModule},
		{"Exceptions", testExceptions}, {"ErrorsKeepNothing", testErrorsKeepNothing}, {"HandledExceptionsStay", testHandledExceptionsStay}, {"GoErrors", testGoErrors}, {"Panics", testPanics},
		{"Callbacks", testCallbacks}, {"References", testReferences}, {"Forgotten", testForgotten},
		{"FuncFreed", testFuncFreed}, {"ThreadState", testThreadState}, {"BuiltinModule", testBuiltinModule},
		{"ForeignThread", testForeignThread}, {"GIL", testGIL}, {"WithoutGIL", testWithoutGIL},
		{"FailedAs", testFailedAs}, {"TypedFuncs", testTypedFuncs}, {"GenericNames", testGenericNames},
		{"ForkedChildren", testForkedChildren}, {"CallContext", testCallContext}, {"CallContextInC", testCallContextInC},
		{"CallContextWaits", testCallContextWaits}, {"CallContextMisuse", testCallContextMisuse},
		{"CallContextNested", testCallContextNested}, {"CallContextSwallowed", testCallContextSwallowed},
		{"LateInterrupts", testLateInterrupts},
		{"ErrorsThatPanic", testErrorsThatPanic}, {"OddClasses", testOddClasses}, {"BytearrayChangedDuringCopy", testBytearrayChangedDuringCopy},
		{"NULs", testNULs}, {"NarrowFloats", testNarrowFloats},
		{"Fork", testFork}, {"Numpy", testNumpy}, {"AfterSubinterpreter", testAfterSubinterpreter},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, _ := python.ObjectCounts()
			// If the caller of a CallContext gives up, another goroutine releases the arguments
			// later. Exceptions are released when Go collects their errors, which an idle process
			// does only every two minutes.
			t.Cleanup(func() {
				require.Eventually(t, func() bool {
					live, _ := python.ObjectCounts()
					if live > before {
						runtime.GC()
					}
					return live <= before
				}, time.Minute, 10*time.Millisecond, "Objects left unreleased")
			})
			c.f(t, py)
		})
	}
	t.Run("Close", func(t *testing.T) { testClose(t, py) })
}

func testStart(t *testing.T, py *python.Interpreter) {
	require.Same(t, py, python.Current())
	again := testenv.Must(python.Start())(t)
	require.Same(t, py, again)
	env := py.Environment()
	again = testenv.Must(python.Start(python.WithEnvironment(&env)))(t)
	require.Same(t, py, again)
	env.Prefix = "/elsewhere"
	testenv.Failed(t, testenv.ErrorOf(python.Start(python.WithEnvironment(&env))), python.ErrConflict, "/elsewhere")
	require.ErrorIs(t, python.RegisterModule("late", testmod.Init()), python.ErrConflict)
	require.Error(t, python.RegisterModule("", nil))
	require.True(t, python.Alive())
	require.False(t, py.Adopted())
	require.False(t, python.Held())
	require.NoError(t, py.With(func() error { require.True(t, python.Held()); return nil }))
}

func testEnvironment(t *testing.T, py *python.Interpreter) {
	out := testenv.Must(py.Run(`
import sys, signal
r = dict(prefix=sys.prefix, base=sys.base_prefix, exe=sys.executable, argv=sys.argv,
         version=sys.version_info[:3], fs=sys.getfilesystemencoding(), path=sys.path,
         sigint=signal.getsignal(signal.SIGINT), name=__name__)
import sysconfig
r["purelib"] = sysconfig.get_path("purelib")
`, nil, "r"))(t)
	r, env := out["r"].(map[string]any), py.Environment()
	require.Equal(t, env.Prefix, r["prefix"])
	require.Equal(t, env.BasePrefix, r["base"])
	require.Equal(t, env.Executable, r["exe"])
	require.Equal(t, env.SitePackages, r["purelib"])
	require.Contains(t, r["path"], env.SitePackages)
	require.NotContains(t, r["path"], "", "Python searches the working directory")
	require.Equal(t, []any{""}, r["argv"])
	require.Equal(t, python.Tuple{int64(env.Version.Major), int64(env.Version.Minor), int64(env.Version.Micro)}, r["version"])
	require.Equal(t, "utf-8", r["fs"])
	require.Nil(t, r["sigint"], "Python installed a signal handler")
}

func testRun(t *testing.T, py *python.Interpreter) {
	out := testenv.Must(py.Run("y = x + 1\nz = [y]", python.Vars{"x": 1}, "y", "z"))(t)
	require.Equal(t, map[string]any{"y": int64(2), "z": []any{int64(2)}}, out)
	testenv.Failed(t, testenv.ErrorOf(py.Run("x = object()", nil, "x", "missing")), python.KeyError, "missing")
	require.ErrorIs(t, testenv.ErrorOf(py.Run("if", nil)), python.SyntaxError)
	require.ErrorContains(t, testenv.ErrorOf(py.Run("", python.Vars{"c": make(chan int)})), "chan int")
	v := testenv.Held(py.Eval("a * 2", python.Vars{"a": "ab"}))(t)
	require.Equal(t, "abab", testenv.Must(v.Text())(t))
	require.ErrorIs(t, testenv.ErrorOf(py.Eval("x = 1", nil)), python.SyntaxError)
	require.ErrorIs(t, testenv.ErrorOf(py.Import("no_such_module")), python.ModuleNotFoundError)
	require.True(t, testenv.Held(py.New(nil))(t).IsNone())
}

func testModule(t *testing.T, py *python.Interpreter) {
	m := testenv.Held(py.Module("gomod", "def f(x):\n    return 10 / x\n"))(t)
	require.InDelta(t, 2.5, testenv.Must(testenv.Held(m.Method("f", 4))(t).Float())(t), 0)
	_, err := py.Run("import gomod\ngomod.f(0)", nil)
	e := testenv.As[*python.Error](t, err)
	require.Contains(t, e.Traceback, `File "<go module gomod>", line 2, in f`)
	require.Contains(t, e.Traceback, "return 10 / x", "the traceback lacks the source line")

	require.ErrorIs(t, testenv.ErrorOf(py.Module("gobad", "1/0")), python.Exception("ZeroDivisionError"))
	require.ErrorIs(t, testenv.ErrorOf(py.Import("gobad")), python.ModuleNotFoundError)
	require.Error(t, testenv.ErrorOf(py.Module("gomod", "1/0")))

	// A module that is replaced is freed at once, although it and its functions refer to each other.
	const source = "import weakref\nclass Big: pass\nbig = Big()\ndef f(): return big\n"
	testenv.Must(py.Module("goreplaced", source))(t).Release()
	ref := testenv.Held(py.Eval("__import__('weakref').ref(__import__('goreplaced').big)", nil))(t)
	testenv.Must(py.Module("goreplaced", source))(t).Release()
	require.True(t, testenv.Held(ref.Call())(t).IsNone())
	kept := testenv.Held(py.Import("gomod"))(t)
	require.Equal(t, m.Pointer(), kept.Pointer(), "a failed replacement removed the old module")
}

func testNumpy(t *testing.T, py *python.Interpreter) {
	np, err := py.Import("numpy")
	if errors.Is(err, python.ModuleNotFoundError) {
		t.Skip("this environment has no numpy")
	}
	require.NoError(t, err)
	defer np.Release()
	a := testenv.Held(np.Method("arange", 6, python.Kwargs{"dtype": "float32"}))(t)
	m := testenv.Held(a.Method("reshape", 2, 3))(t)
	sum := testenv.Held(m.Method("sum", python.Kwargs{"axis": 0}))(t)
	list := testenv.Held(sum.Method("tolist"))(t)
	require.Equal(t, []float64{3, 5, 7}, testenv.Must(python.As[[]float64](list))(t))
	_, err = m.Method("sum", python.Kwargs{"axis": 5})
	require.ErrorIs(t, err, python.Exception("numpy.exceptions.AxisError"))
	require.ErrorIs(t, err, python.ValueError)
	for _, name := range []string{"dpctl", "numba"} {
		mod, err := py.Import(name)
		if errors.Is(err, python.ModuleNotFoundError) {
			t.Logf("this environment has no %s", name)
			continue
		}
		require.NoError(t, err)
		mod.Release()
	}
}

// TestStartErrors checks that an error of Start names the file that cannot be loaded.
func TestStartErrors(t *testing.T) {
	if os.Getenv(embedEnv) != "" {
		t.Skip("this process is a child for embedding")
	}
	_, err := python.Inspect("/nonexistent/python3")
	failed := testenv.As[*python.OpError](t, err)
	require.Equal(t, "Inspect", failed.Op)
	require.ErrorContains(t, err, "/nonexistent/python3")
	notLib := filepath.Join(t.TempDir(), "libpython3.11.so")
	require.NoError(t, os.WriteFile(notLib, []byte("no ELF"), 0o644))
	_, err = python.Start(python.WithEnvironment(&python.Environment{Library: notLib}))
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "Start", failed.Op)
	require.ErrorContains(t, err, notLib)
	pipe := filepath.Join(t.TempDir(), "libpython3.11.so")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.ErrorContains(t, testenv.ErrorOf(python.Start(python.WithEnvironment(&python.Environment{Library: pipe}))), pipe+": it is a named pipe")
	require.ErrorIs(t, testenv.ErrorOf(python.Start(python.WithEnvironment(&python.Environment{Executable: "/x"}))), python.ErrNoLibrary)
	require.Nil(t, python.Current())

	// Libraries without the symbols of CPython, and of a free-threaded build.
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler named cc for a false libpython")
	}
	for _, c := range []struct {
		source string
		reason error
		says   string
	}{
		{"int Py_IsNothing;", python.ErrTooOld, "it has no symbol"},
		// A free-threaded build has the required functions, but its objects have another
		// layout. Only this symbol identifies it.
		{"void _Py_MergeZeroLocalRefcount(void *o) { (void)o; }", python.ErrFreeThreaded, "free-threaded build, which has no stable ABI"},
	} {
		src := filepath.Join(t.TempDir(), "fake.c")
		lib := filepath.Join(t.TempDir(), "libpython3.11.so.1.0")
		require.NoError(t, os.WriteFile(src, []byte(c.source), 0o644))
		out, err := exec.Command(cc, "-shared", "-fPIC", "-o", lib, src).CombinedOutput()
		require.NoError(t, err, "%s", out)
		testenv.Failed(t, testenv.ErrorOf(python.Start(python.WithEnvironment(&python.Environment{Library: lib}))), c.reason, c.says)
	}
}

// TestAdopt imports an extension module written in Go into each Python.
func TestAdopt(t *testing.T) {
	list := somePythons(t, "there is no Python to import an extension module into")
	dir := t.TempDir()
	lib := filepath.Join(dir, "usmb_adopted.abi3.so")
	out, err := exec.Command("go", "build", "-buildmode=c-shared", "-o", lib, "./testdata/adopt").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const program = `
import os, warnings, usmb_adopted
warnings.simplefilter("ignore", DeprecationWarning)
for i in range(3): usmb_adopted.run()
pid = os.fork()
if pid == 0:
    try: usmb_adopted.run()
    except RuntimeError: os._exit(42)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`
	for _, env := range list {
		t.Run(env.Version.String()+" "+filepath.Base(env.Prefix), func(t *testing.T) {
			cmd := exec.Command(env.Executable, "-c", program)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, "42\n", string(out))
		})
	}
}

// TestStaticProgram checks the error of Start in a statically linked program, which cannot
// load libpython.
func TestStaticProgram(t *testing.T) {
	env, err := python.Find()
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(linkagetest.Build(t))
	cmd.Env = append(os.Environ(), "USMBRIDGE_PYTHON="+env.Executable)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "linked statically")
}
