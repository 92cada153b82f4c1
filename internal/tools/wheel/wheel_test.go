package main

import (
	"archive/zip"
	"encoding/csv"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestGlibcVersion(t *testing.T) {
	for text, want := range map[string]glibc{"GLIBC_2.34": {2, 34}, "GLIBC_2.2.5": {2, 2}, "GLIBC_2.117": {2, 117}} {
		found, ok := glibcVersion(text)
		require.True(t, ok, text)
		require.Equal(t, want, found)
	}
	for _, text := range []string{"", "GLIBC_PRIVATE", "GLIBC_", "GLIBCXX_3.4", "OPENSSL_3.0.0"} {
		_, ok := glibcVersion(text)
		require.False(t, ok, text)
	}
}

func TestPlatformTag(t *testing.T) {
	for _, test := range []struct {
		found findings
		want  string
	}{
		{findings{machine: "x86_64", needs: glibc{2, 2}}, "manylinux_2_17_x86_64"},
		{findings{machine: "x86_64", needs: glibc{2, 18}}, "manylinux_2_24_x86_64"},
		{findings{machine: "aarch64", needs: glibc{2, 28}}, "manylinux_2_28_aarch64"},
		{findings{machine: "x86_64", needs: glibc{2, 99}}, "manylinux_2_99_x86_64"},
		{findings{machine: "x86_64", needs: glibc{2, 17}, foreign: "libfoo.so.1"}, "linux_x86_64"},
	} {
		require.Equal(t, test.want, test.found.platform())
	}
}

// TestAuditRefuses audits libraries that Python cannot load or that depend on the machine or the Python.
func TestAuditRefuses(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: ", err)
	}
	compile := func(code string, args ...string) string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "x.c"), []byte(code), 0o644))
		args = append(args, "-shared", "-fPIC", "-o", filepath.Join(dir, "x.so"), filepath.Join(dir, "x.c"))
		out, err := exec.Command(cc, args...).CombinedOutput()
		require.NoErrorf(t, err, "%s", out)
		return filepath.Join(dir, "x.so")
	}
	_, err = audit(compile("int something(void) { return 0; }"))
	require.ErrorContains(t, err, "does not export PyInit__native")
	_, err = audit(compile("int PyLong_AsLong(void *); int PyInit__native(void) { return PyLong_AsLong(0); }"))
	require.ErrorContains(t, err, "links to the symbol PyLong_AsLong of CPython")
	_, err = audit(compile("int PyInit__native(void) { return 0; }", "-g"))
	require.ErrorContains(t, err, "names directories of the machine")
	found, err := audit(compile("int PyInit__native(void) { return 0; }"))
	require.NoError(t, err)
	require.Empty(t, found.foreign)
}

// TestPackingIsReproducible checks that equal libraries give equal wheels at different times.
func TestPackingIsReproducible(t *testing.T) {
	dir := t.TempDir()
	library := filepath.Join(dir, "library")
	require.NoError(t, os.WriteFile(library, []byte("code"), 0o600))
	w := wheel{version: "1.2.3", tag: "cp311-abi3-any", license: []byte("text")}
	var files [2][]byte
	for i := range files {
		path, err := w.write(filepath.Join(dir, "dist"), library)
		require.NoError(t, err)
		files[i], err = os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(library, time.Unix(0, 0), time.Unix(0, 0)))
	}
	require.Equal(t, files[0], files[1])
}

// TestCopySources checks that the second build reads the sources and no results of earlier builds.
func TestCopySources(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copied")
	for _, name := range []string{"go.mod", "a/b.go", "a/bin/c.go", "bin/tool", "dist/old.whl", ".venv/x.py", "a/.cache/y"} {
		path := filepath.Join(from, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
	}
	require.NoError(t, copySources(to, from))
	var found []string
	require.NoError(t, filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(to, path)
			found = append(found, name)
		}
		return err
	}))
	require.Equal(t, []string{"a/b.go", "a/bin/c.go", "go.mod"}, found)
}

// sample lists the Python tests that run with the wheel. `make test-pythons` runs all of them, with each Python.
var sample = []string{"test_package.py", "test_array.py", "test_dlpack_export.py", "test_dlpack_import.py", "test_exchange.py", "test_suai_in.py", "test_suai_out.py", "test_interprocess.py", "test_processes.py", "test_share.py"}

// TestWheel builds the wheel, checks its files, and runs a sample of the Python tests with it in an unmodified
// Python.
func TestWheel(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getenv("CGO_ENABLED") == "0" {
		t.Skip("the module needs Linux and cgo")
	}
	dist, site := t.TempDir(), t.TempDir()
	path, err := build(options{out: dist, root: "../../.."})
	require.NoError(t, err)
	require.Regexp(t, `/usmbridge-[0-9.]+-cp311-abi3-(manylinux_2_\d+|linux)_(x86_64|aarch64)\.whl$`, path)
	unpack(t, path, site)
	t.Run("fresh environment", func(t *testing.T) { freshEnvironment(t, path) })
	exe := testenv.Interpreter(t, "import pytest, hypothesis, numpy")
	t.Run("free-threaded", func(t *testing.T) { refusesFreeThreads(t, exe, site) })

	tests, err := filepath.Abs("../../../interop/pymodule/tests")
	require.NoError(t, err)
	// These tests take 45 s. How the package was built makes no difference to them, and the tests of package
	// pymodule run them.
	args := []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not stubs and not killed_at_random"}
	for _, name := range sample {
		args = append(args, filepath.Join(tests, name))
	}
	cmd := exec.Command(exe, args...)
	cmd.Dir = dist
	// Without VIRTUAL_ENV, the module finds SYCL beside the running Python.
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "VIRTUAL_ENV=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "PYTHONPATH="+site, "USMBRIDGE_TEST_HOST="+exe, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
}

const sampleProgram = `
import sys, usmbridge as ub
a = ub.asarray([[1, 2, 3], [4, 5, 6]], dtype="int32", device="host")
assert memoryview(a).tolist() == [[1, 2, 3], [4, 5, 6]] and ub.from_dlpack(a.T).shape == (3, 2)
assert ub.__file__.startswith(sys.prefix), ub.__file__
print(ub.__version__, ub.devices()[-1].filter_string)
`

// freshEnvironment installs the wheel into a new environment without Go, SYCL or other packages, and uses it.
func freshEnvironment(t *testing.T, path string) {
	exe := testenv.Interpreter(t, "import pytest, hypothesis, numpy")
	if out, err := exec.Command(exe, "-m", "pip", "--version").CombinedOutput(); err != nil {
		testenv.Missing(t, exe+" has no pip: "+strings.TrimSpace(string(out)), testenv.Peers)
	}
	venv := t.TempDir()
	if out, err := exec.Command(exe, "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Skipf("%s cannot create environments: %s", exe, out)
	}
	fresh := filepath.Join(venv, "bin", "python")
	out, err := exec.Command(exe, "-m", "pip", "--python", fresh, "install", "--no-index", "--no-deps", "--disable-pip-version-check", path).CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	run := func(args ...string) string {
		cmd := exec.Command(fresh, args...)
		cmd.Env, cmd.Dir = []string{"PATH=" + t.TempDir()}, venv
		out, err := cmd.CombinedOutput()
		require.NoErrorf(t, err, "%s", out)
		return string(out)
	}
	require.Equal(t, usmarray.Version+" host\n", run("-c", sampleProgram))
	require.Contains(t, run("-m", "usmbridge"), "not found; the host backend serves")
	require.Contains(t, run("-c", "import importlib.metadata as m; print(m.entry_points(group='numba_extensions'))"), "usmbridge:numba.init")
}

// refusesFreeThreads loads the library into a process with a symbol that only free-threaded builds of CPython have.
// Their objects have another layout, so the library must not use any.
func refusesFreeThreads(t *testing.T, exe, site string) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: ", err)
	}
	dir := t.TempDir()
	source, mark := filepath.Join(dir, "mark.c"), filepath.Join(dir, "mark.so")
	require.NoError(t, os.WriteFile(source, []byte("void _Py_MergeZeroLocalRefcount(void *o) { (void)o; }"), 0o600))
	out, err := exec.Command(cc, "-shared", "-fPIC", "-o", mark, source).CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	cmd := exec.Command(exe, "-c", "import usmbridge")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONPATH="+site, "LD_PRELOAD="+mark, "PYTHONDONTWRITEBYTECODE=1")
	out, err = cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, 1, exit.ExitCode(), "%s", out)
	require.Contains(t, string(out), "ImportError: usmbridge: this Python has no stable ABI of CPython 3.11 or newer, like free-threaded builds")
}

// unpack extracts the wheel into a directory and checks RECORD.
func unpack(t *testing.T, path, site string) {
	t.Helper()
	z, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer z.Close()
	names := map[string]bool{}
	for _, f := range z.File {
		names[f.Name] = true
		r, err := f.Open()
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		dst := filepath.Join(site, filepath.FromSlash(f.Name))
		require.NoError(t, os.MkdirAll(filepath.Dir(dst), 0o755))
		require.NoError(t, os.WriteFile(dst, data, f.Mode()))
		if !strings.HasSuffix(f.Name, "RECORD") {
			continue
		}
		rows, err := csv.NewReader(strings.NewReader(string(data))).ReadAll()
		require.NoError(t, err)
		listed := map[string]bool{}
		for _, row := range rows {
			listed[row[0]] = true
		}
		require.Equal(t, names, listed, "RECORD lists every member")
	}
}
