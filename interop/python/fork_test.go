//go:build linux && cgo

package python_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
)

const forks = `
import os, sys, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork in a process of many threads
out, pid = None, None
def fork():
    global pid
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        print("child")
    return pid
def wait():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        p, status = os.waitpid(pid, os.WNOHANG)
        if p: return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "the child did not end"
def returns(*args): return fork()
def raises(*args):
    if fork() == 0: raise ValueError("of the child")
def exits(*args):
    if fork() == 0: sys.exit(3)
class Finalized:
    __del__ = returns
class Context:
    __enter__ = returns
    def __exit__(self, *args):
        if pid == 0: print("left", *args)
class Iterable:
    def __iter__(self):
        yield 1
        fork()
        yield 2
    def __repr__(self): fork(); return "text"
    def __getattr__(self, name): fork(); return name
`

// testForkedChildren checks that a child, forked by Python code, ends where it would return to Go.
func testForkedChildren(t *testing.T, py *python.Interpreter) {
	m := testenv.Held(py.Module("forks", forks))(t)
	call := func(f string) func() error {
		return func() error { return testenv.ErrorOf(released(m.Method(f))) }
	}
	object := func(class string) *python.Object { return testenv.Held(m.Method(class))(t) }
	nested := testenv.Held(py.New(func() error { return call("exits")() }))(t)
	again := testenv.Held(py.New(func() error {
		_, err := py.Run("import forks; g()", python.Vars{"g": nested})
		return err
	}))(t)
	for _, c := range []struct {
		name   string
		f      func() error
		status int64
		text   string
	}{
		{"method returns", call("returns"), 0, "child\n"},
		{"method raises", call("raises"), 1, "ValueError: of the child\n"},
		{"method exits", call("exits"), 3, "child\n"},
		{"call", func() error {
			f := testenv.Held(m.Attr("exits"))(t)
			return testenv.ErrorOf(released(f.Call()))
		}, 3, "child\n"},
		{"call with a context", func() error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			f := testenv.Held(m.Attr("raises"))(t)
			return testenv.ErrorOf(released(f.CallContext(ctx)))
		}, 1, "ValueError: of the child\n"},
		{"run", func() error { return testenv.ErrorOf(py.Run("import forks; forks.exits()", nil)) }, 3, "child\n"},
		{"run to its end", func() error { return testenv.ErrorOf(py.Run("import forks; forks.fork()", nil)) }, 0, "child\n"},
		{"with", func() error {
			return testenv.ErrorOf(py.Run("import forks\nwith forks.Context(): 1 / 0 if forks.pid == 0 else 1", nil))
		}, 1, "left <class 'ZeroDivisionError'>"},
		{"eval", func() error { return testenv.ErrorOf(released(py.Eval("__import__('forks').exits()", nil))) }, 3, "child\n"},
		{"module", func() error {
			return testenv.ErrorOf(released(py.Module("forks_at_import", "import forks; forks.raises()")))
		}, 1, "ValueError: of the child\n"},
		{"held GIL", func() error { return py.With(call("exits")) }, 3, "child\n"},
		{"callback", func() error { return testenv.ErrorOf(released(nested.Call())) }, 3, "child\n"},
		{"callback in a callback", func() error { return testenv.ErrorOf(released(again.Call())) }, 3, "child\n"},
		{"attribute", func() error { return testenv.ErrorOf(released(object("Iterable").Attr("x"))) }, 0, "child\n"},
		{"text", func() error { return testenv.ErrorOf(object("Iterable").Str()) }, 0, "child\n"},
		{"iteration", func() error {
			for o, err := range object("Iterable").All() {
				if err != nil {
					return err
				}
				o.Release()
			}
			return nil
		}, 0, "child\n"},
		{"finalizer", func() error {
			object("Finalized").Release()
			return nil
		}, 0, "child\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			require.NoError(t, m.SetAttr("out", out))
			require.NoError(t, c.f())
			status := testenv.Held(m.Method("wait"))(t)
			text := testenv.Must(os.ReadFile(out))(t)
			require.Equal(t, any(c.status), testenv.Must(status.Value())(t), "%s", text)
			require.Contains(t, string(text), "child\n")
			require.Contains(t, string(text), c.text)
		})
	}
}

// released releases the object of a result.
func released(o *python.Object, err error) (*python.Object, error) {
	if err == nil {
		o.Release()
	}
	return nil, err
}

// TestForkAtStart checks a child that is forked while Python starts.
func TestForkAtStart(t *testing.T) {
	env := somePythons(t, "no Python can be embedded")[0]
	dir := t.TempDir()
	source := "import os\nif os.environ.pop('USMBRIDGE_TEST_FORKS', ''):\n    pid = os.fork()\n    if pid: print('status', os.waitpid(pid, 0)[1])\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(source), 0o644))
	cmd := exec.Command(os.Args[0], "-test.run=^TestForkAtStartInChild$", "-test.v")
	cmd.Env = append(os.Environ(), embedEnv+"="+env.Executable, "USMBRIDGE_TEST_FORKS=1", "PYTHONPATH="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "status 0\n")
	require.Equal(t, 1, strings.Count(string(out), "--- PASS"), "%s", out)
}

// TestForkAtStartInChild is the child of TestForkAtStart.
func TestForkAtStartInChild(t *testing.T) {
	exe := os.Getenv(embedEnv)
	if exe == "" {
		t.Skip("run by TestForkAtStart in a process of its own")
	}
	py := testenv.Must(python.Start(python.WithEnvironment(testenv.Must(python.Inspect(exe))(t))))(t)
	require.NoError(t, py.Flush())
}
