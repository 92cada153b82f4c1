package wheel

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/pypackage"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/usmarray"
)

// library is C code of a library that the checks accept.
const library = "int PyInit__native(void) { return 0; }"

// compile compiles a library and returns its path.
func compile(t *testing.T, name, code string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path+".c", []byte(code), 0o600))
	out, err := exec.Command("cc", append([]string{"-shared", "-fPIC", "-o", path, path + ".c"}, args...)...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("no C compiler: ", err)
	}
	require.NoError(t, err, "%s", out)
	return path
}

// TestChecksFindFaults checks that wheel.sh accepts a library and refuses one with each fault.
func TestChecksFindFaults(t *testing.T) {
	python := compile(t, "libpython3.11.so", "")
	for _, test := range []struct{ path, problem string }{
		{compile(t, "good.so", library), ""},
		{compile(t, "linked.so", library, "-Wl,--no-as-needed", python), "links to libpython"},
		{compile(t, "debug.so", library, "-g"), "has debug information"},
		{compile(t, "symbols.so", "int PyLong_AsLong(void *); int PyInit__native(void) { return PyLong_AsLong(0); }"), "PyLong_AsLong"},
		{compile(t, "nothing.so", "int something(void) { return 0; }"), "does not export PyInit__native"},
	} {
		out, err := exec.Command("./wheel.sh", "-check", test.path).CombinedOutput()
		require.Equal(t, test.problem != "", err != nil, "%s: %s", test.path, out)
		require.Contains(t, string(out), test.problem)
	}
}

// TestBuildFindsFaults builds wheels of a small library, which stands for the Go code. The packages are those of
// `make wheel`; `make test-pythons` runs this test.
func TestBuildFindsFaults(t *testing.T) {
	python := os.Getenv("USMBRIDGE_WHEEL_PYTHON")
	if python == "" {
		t.Skip("needs the packages of make wheel; make test-pythons sets USMBRIDGE_WHEEL_PYTHON")
	}
	dir := t.TempDir()
	source, command := filepath.Join(dir, "library.c"), filepath.Join(dir, "go")
	foreign := compile(t, "libforeign.so", "", "-Wl,-soname,libforeign.so")
	// The argument after -o is the path of the library.
	require.NoError(t, os.WriteFile(command, []byte("#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\n"+
		"cc -shared -fPIC -DTIME=$(date +%s%N) -o \"$2\" "+source+" $LINK\n"), 0o700))
	for name, test := range map[string]struct{ code, link, problem string }{
		"none":                  {library, "", ""},
		"the time of the build": {library + " long built = TIME;", "", "two builds of the same sources differ"},
		"a newer glibc":         {library + " int stat(const char *, void *); int f(void) { return stat(0, 0); }", "", "too-recent versioned symbols"},
		"another library":       {library, "-Wl,--no-as-needed " + foreign, "libforeign.so"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(source, []byte(test.code), 0o600))
			dist := filepath.Join(dir, "dist")
			cmd := exec.Command("./wheel.sh", python, dist)
			cmd.Env = append(os.Environ(), "GO="+command, "LINK="+test.link)
			out, err := cmd.CombinedOutput()
			require.Equal(t, test.problem != "", err != nil, "%s", out)
			require.Contains(t, string(out), test.problem)
			if err == nil {
				wheels, err := filepath.Glob(dist + "/usmbridge-" + usmarray.Version + "-cp311-abi3-manylinux*.whl")
				require.NoError(t, err)
				require.Len(t, wheels, 1)
			}
		})
	}
}

// sample lists the Python tests that run with the wheel: of imports and exits, other processes, and exchange both ways. `make
// test-pythons` runs all tests, with each Python.
var sample = []string{"test_package.py", "test_exchange.py", "test_dlpack_import.py", "test_suai_out.py", "test_interprocess.py", "test_processes.py"}

// TestWheel builds the wheel with pip, checks it, and runs a sample of the Python tests with it in an unmodified Python.
func TestWheel(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getenv("CGO_ENABLED") == "0" {
		t.Skip("the module needs Linux and cgo")
	}
	exe := testenv.Interpreter(t, "import pip, venv, hatchling, pytest, hypothesis, numpy")
	run := func(env []string, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env, cmd.Dir = env, t.TempDir()
		out, err := cmd.CombinedOutput()
		require.NoErrorf(t, err, "%s", out)
		return string(out)
	}
	path := func(name string) string { return filepath.Join(testenv.Root(), name) }
	dist, site := t.TempDir(), t.TempDir()
	run(nil, exe, "-m", "pip", "wheel", "--no-index", "--no-build-isolation", "--wheel-dir", dist, path("internal/pypackage"))
	wheels, err := filepath.Glob(filepath.Join(dist, "usmbridge-"+usmarray.Version+"-cp311-abi3-linux_*.whl"))
	require.NoError(t, err)
	require.Len(t, wheels, 1)
	run(nil, exe, "-m", "zipfile", "-e", wheels[0], site)
	run(nil, path("internal/tools/wheel/wheel.sh"), "-check", filepath.Join(site, "usmbridge", "_native.abi3.so"))
	t.Run("contents", func(t *testing.T) {
		info := filepath.Join(site, "usmbridge-"+usmarray.Version+".dist-info")
		require.FileExists(t, filepath.Join(info, "licenses", "LICENSE"))
		for _, f := range pypackage.Sources() {
			text, err := os.ReadFile(filepath.Join(site, f.Name))
			require.NoError(t, err)
			require.Equal(t, f.Data, string(text))
		}
		for _, f := range pypackage.Metadata(usmarray.Version)[:2] {
			text, err := os.ReadFile(filepath.Join(info, f.Name))
			require.NoError(t, err)
			for line := range strings.Lines(f.Data) {
				require.True(t, strings.Contains(string(text), line) || strings.HasPrefix(line, "Metadata-Version:"), "%s: %s", f.Name, line)
			}
		}
	})
	t.Run("fresh environment", func(t *testing.T) {
		venv := t.TempDir()
		run(nil, exe, "-m", "venv", "--without-pip", venv)
		fresh, empty := filepath.Join(venv, "bin", "python"), []string{"PATH=" + t.TempDir()}
		run(nil, exe, "-m", "pip", "--python", fresh, "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheels[0])
		require.Equal(t, usmarray.Version+" host\n", run(empty, fresh, "-c", sampleProgram))
		require.Contains(t, run(empty, fresh, "-m", "usmbridge"), "not found; the host backend serves")
		require.Contains(t, run(empty, fresh, "-c", "import importlib.metadata as m; print(m.entry_points(group='numba_extensions'))"), "usmbridge:numba.init")
	})
	t.Run("free-threaded", func(t *testing.T) {
		// Only free-threaded builds of CPython have this symbol. Their objects have another layout.
		mark := compile(t, "mark.so", "void _Py_MergeZeroLocalRefcount(void *o) { (void)o; }")
		cmd := exec.Command(exe, "-c", "import usmbridge")
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "PYTHONPATH="+site, "LD_PRELOAD="+mark, "PYTHONDONTWRITEBYTECODE=1")
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%s", out)
		require.Contains(t, string(out), "ImportError: usmbridge: this Python has no stable ABI of CPython 3.11 or newer, like free-threaded builds")
	})

	// The tests that are left out take 45 s. How the package was built makes no difference to them, and the tests of
	// package pymodule run them.
	args := []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not stubs and not killed_at_random"}
	for _, name := range sample {
		args = append(args, path("interop/pymodule/tests/"+name))
	}
	// Without VIRTUAL_ENV, the module finds SYCL beside the running Python.
	env := append(os.Environ(), "PYTHONPATH="+site, "USMBRIDGE_TEST_HOST="+exe, "PYTHONDONTWRITEBYTECODE=1", "VIRTUAL_ENV=")
	run(env, exe, args...)
}

const sampleProgram = `
import sys, usmbridge as ub
a = ub.asarray([[1, 2, 3], [4, 5, 6]], dtype="int32", device="host")
assert memoryview(a).tolist() == [[1, 2, 3], [4, 5, 6]] and ub.from_dlpack(a.T).shape == (3, 2)
assert ub.__file__.startswith(sys.prefix), ub.__file__
print(ub.__version__, ub.devices()[-1].filter_string)
`
