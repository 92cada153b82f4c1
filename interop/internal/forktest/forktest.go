// Package forktest tests that Python functions of an executor.Runner can fork: the child never becomes a second Go
// program, its signals have their default actions, and the Runner goes on.
package forktest

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
)

// Module is the name of the Python module that the Runner must have, with the text Source.
const Module = "forks"

// Source is the Python code of the tests.
const Source = `
import ctypes, errno, multiprocessing, os, signal, subprocess, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork in a process of many threads

def good(): return 7

def wait(pid, seconds=20):
    "The exit status of a child, or None if it does not end."
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        p, status = os.waitpid(pid, os.WNOHANG)
        if p: return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

def fork(path):
    "Forks. The output of the child goes to a file."
    pid = os.fork()
    if pid == 0:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        sys.stdout = open(1, "w", closefd=False)  # buffered
        sys.stderr = open(2, "w", closefd=False)
        print("child", end="")
    return pid

def read(path):
    with open(path) as f: return f.read()

class Held:
    "An object whose file is closed, and written, when the object is freed."
    def __init__(self, path): self.f = open(path, "w")
    def write(self, text): self.f.write(text)

def ends(how, path):
    pid = fork(path)
    if pid: return [wait(pid), read(path)]
    held = Held(path + ".held")
    held.write("held")
    if how == "returns": return held
    if how == "raises": raise ValueError("of the child")
    if how == "exits": sys.exit(3)
    if how == "exits with 0": sys.exit(0)
    if how == "exits with None": sys.exit()
    if how == "exits with a text": sys.exit("the reason")
    if how == "exits with a class": raise SystemExit
    if how == "exits with a large number": sys.exit(1 << 70)
    if how == "is interrupted": raise KeyboardInterrupt
    if how == "raises a group": raise BaseExceptionGroup("group", [SystemExit(3)])
    if how == "hook exits":
        def hook(*args): print("hook", end=""); sys.exit(5)
        sys.excepthook = hook
        raise ValueError
    if how == "hook fails":
        sys.excepthook = lambda *args: 1 / 0
        raise ValueError("of the child")
    if how == "has no streams":
        sys.stdout.flush()
        sys.stdout = sys.stderr = None
        raise ValueError
    if how == "stream is full":
        sys.stdout.flush()
        sys.stdout = open("/dev/full", "w")
        print("lost")
        return
    if how == "forks again":
        sys.stdout.flush()
        held.f.flush()
        again = os.fork()
        if again == 0: sys.exit(4)
        sys.exit(wait(again) + 10)
    if how == "forks in a thread":  # the child's only thread is no thread of Go
        r = []
        def run():
            p = os.fork()
            if p == 0: os._exit(6)
            r.append(wait(p))
        t = threading.Thread(target=run); t.start(); t.join()
        sys.exit(r[0] + 10)
    if how == "starts a program":
        sys.exit(subprocess.run([sys.executable, "-c", "raise SystemExit(8)"]).returncode + 10)
    if how == "becomes a program":
        os.execv("/bin/sh", ["sh", "-c", "exit 9"])
    os._exit(99)

def counted(path):
    "Forks in a short call. Each call notes the process that runs it."
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, b"%d\n" % os.getpid())
    os.close(fd)
    pid = os.fork()
    return pid and wait(pid)

def killed(sig):
    "Signals reach a child at once, also one that has just been forked."
    r = []
    for _ in range(30):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(1)
        os.kill(pid, sig)
        r.append(wait(pid, 5))
    return sorted(set(map(str, r)))

def terminated():
    p = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    p.start()
    p.terminate()
    p.join(10)
    alive = p.is_alive()
    p.kill()
    return "runs on" if alive else p.exitcode

def pooled():
    for _ in range(3):
        with multiprocessing.get_context("fork").Pool(2) as p:
            r = p.map_async(abs, [-1, -2]).get(20)
    return r

def report(path, f):
    "The output of a child that ends after f."
    pid = fork(path)
    if pid == 0:
        try: f()
        except BaseException as e: print("", type(e).__name__, end="")
        sys.stdout.flush()
        os._exit(0)
    return [wait(pid), read(path)]

def broken_pipe(path):
    r, w = os.pipe()
    os.close(r)
    def write(): os.write(w, b"x")
    try: return report(path, write)
    finally: os.close(w)

def stays(path):
    "A handler of Python is called in a child of the process that installed it; an ignored signal stays ignored."
    def handlers():
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, lambda *a: print(" handler", end=""))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        again = os.fork()
        if again == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGPIPE)
            os._exit(1)
        sys.stdout = None
        os._exit(-wait(again))
    return report(path, handlers)

def installed(path):
    "A handler that was installed in this process, not in a child, stays. Python has them in its main thread alone."
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda sig: os._exit(23))
    libc, before = ctypes.CDLL(None), ctypes.create_string_buffer(256)  # room for a struct sigaction
    libc.sigaction(signal.SIGUSR2, None, before)
    libc.signal(signal.SIGUSR2, handler)
    try: return report(path, lambda: os.kill(os.getpid(), signal.SIGUSR2))
    finally: libc.sigaction(signal.SIGUSR2, before, None)

def crashes(path): return report(path, os.abort)  # the address sanitizer reports other crashes

def masks():
    with open("/proc/thread-self/status") as f:
        return {k: int(v, 16) for k, _, v in (line.partition(":") for line in f) if k in ("SigBlk", "SigIgn", "SigCgt")}

def signals(path):
    "Signals that a child handles, ignores and blocks, but for those of Python's faulthandler, and those that nohup and shells ignore."
    def show():
        m = masks()
        faults = signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL
        for name in "SigCgt", "SigIgn", "SigBlk":
            left_out = (1, 2, 3) if name == "SigIgn" else faults
            print("", name, *[s for s in range(1, 32) if m[name] >> s - 1 & 1 and s not in left_out], end="")
    return report(path, show)

def inherited(before_exec):
    "Whether a program that subprocess starts ignores SIGPIPE."
    out = subprocess.run(["/bin/sh", "-c", "grep SigIgn /proc/self/status"], capture_output=True, text=True, preexec_fn=(lambda: None) if before_exec else None).stdout
    return int(out.split()[1], 16) >> signal.SIGPIPE - 1 & 1
`

// Test runs the tests. The Runner has the module.
func Test(t *testing.T, r executor.Runner) {
	call := func(t *testing.T, function string, args ...any) any {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return testenv.Must(r.Call(ctx, Module+":"+function, args...))(t)
	}
	goesOn := func(t *testing.T) {
		t.Helper()
		for range 3 {
			require.EqualValues(t, 7, call(t, "good"))
		}
		require.NoError(t, r.Health())
	}
	t.Run("End", func(t *testing.T) {
		for _, c := range []struct {
			how    string
			status int
			text   []string // of the output
		}{
			{"returns", 0, nil},
			{"raises", 1, []string{"Traceback (most recent call last)", "in ends", "ValueError: of the child\n"}},
			{"exits", 3, nil},
			{"exits with 0", 0, nil},
			{"exits with None", 0, nil},
			{"exits with a text", 1, []string{"the reason\n"}},
			{"exits with a class", 0, nil},
			{"exits with a large number", 255, nil},
			{"is interrupted", 1, []string{"KeyboardInterrupt"}},
			{"raises a group", 1, []string{"BaseExceptionGroup: group"}},
			{"hook exits", 5, []string{"hook"}},
			{"hook fails", 1, []string{"ValueError: of the child\n"}},
			{"has no streams", 1, nil},
			{"stream is full", 120, []string{"No space left"}},
			{"forks again", 14, nil},
			{"forks in a thread", 16, nil},
			{"starts a program", 18, nil},
			{"becomes a program", 9, nil},
		} {
			t.Run(c.how, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "out")
				out := call(t, "ends", c.how, path).([]any)
				require.EqualValues(t, c.status, out[0], "%s", out[1])
				if c.how == "becomes a program" {
					return // nothing is flushed
				}
				require.Contains(t, out[1], "child")
				for _, text := range c.text {
					require.Contains(t, out[1], text)
				}
				if c.text == nil {
					require.Equal(t, "child", out[1])
				}
				held := testenv.Must(os.ReadFile(path + ".held"))(t)
				require.Equal(t, "held", string(held), "a local variable of the function was not freed")
				goesOn(t)
			})
		}
	})
	t.Run("CallsAtOnce", func(t *testing.T) {
		const calls = 40
		path := filepath.Join(t.TempDir(), "pids")
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				out, err := r.Call(t.Context(), Module+":counted", path)
				if err != nil || out != int64(0) {
					t.Error(out, err)
				}
			})
		}
		all.Wait()
		lines := strings.Fields(string(testenv.Must(os.ReadFile(path))(t)))
		require.Len(t, lines, calls, "a child ran calls")
		for _, pid := range lines {
			require.Equal(t, lines[0], pid)
		}
		goesOn(t)
	})
	t.Run("Crash", func(t *testing.T) {
		out := call(t, "crashes", filepath.Join(t.TempDir(), "out")).([]any)
		require.EqualValues(t, -6, out[0], "%s", out[1])
		require.NotContains(t, out[1], "goroutine")
		goesOn(t)
	})
	for _, c := range []struct {
		name     string
		function string
		args     []any // a file is added if inFile is set
		inFile   bool
		want     any
	}{
		{"SIGTERM", "killed", []any{15}, false, []any{"-15"}},
		{"SIGHUP", "killed", []any{1}, false, []any{"-1"}},
		{"SIGUSR1", "killed", []any{10}, false, []any{"-10"}},
		{"Terminate", "terminated", nil, false, int64(-15)},
		{"Pool", "pooled", nil, false, []any{int64(1), int64(2)}},
		{"BrokenPipe", "broken_pipe", nil, true, []any{int64(0), "child BrokenPipeError"}},
		{"HandlersOfChildren", "stays", nil, true, []any{int64(13), "child handler"}},
		{"HandlersOfParents", "installed", nil, true, []any{int64(23), ""}},
		{"Signals", "signals", nil, true, []any{int64(0), "child SigCgt SigIgn 13 SigBlk"}},
		{"Exec", "inherited", []any{false}, false, int64(0)},
		{"ExecAfterFork", "inherited", []any{true}, false, int64(0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "SIGHUP" && signal.Ignored(syscall.SIGHUP) {
				t.Skip("SIGHUP was ignored when this program started, so it stays ignored in children")
			}
			args := c.args
			if c.inFile {
				args = append(args, filepath.Join(t.TempDir(), "out"))
			}
			require.Equal(t, c.want, call(t, c.function, args...))
			goesOn(t)
		})
	}
}
