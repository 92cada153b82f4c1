package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/python"
)

// mainEnv makes this test binary run usmpython.
const mainEnv = "USMBRIDGE_TEST_USMPYTHON"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns a command that runs usmpython with the arguments.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	env := testpython.Need(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1", "VIRTUAL_ENV="+env.Prefix, python.EnvVar+"=")
	if env.Prefix == env.BasePrefix {
		cmd.Env = append(cmd.Env, python.EnvVar+"="+env.Executable)
	}
	return cmd
}

// runPython runs usmpython and returns its standard output. The exit status must be 0.
func runPython(t *testing.T, args ...string) string {
	t.Helper()
	cmd := command(t, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, stderr.String())
	return string(out)
}

func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.py")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func status(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}

func TestCommandLine(t *testing.T) {
	env := testpython.Need(t)
	require.Equal(t, "['-c', 'a', '-b']\n", runPython(t, "-c", "import sys; print(sys.argv)", "a", "-b"))
	require.Equal(t, env.Prefix+"\n"+env.Executable+"\n",
		runPython(t, "-c", "import sys; print(sys.prefix); print(sys.executable)"))
	require.Equal(t, "Python "+env.Version.String()+"\n", runPython(t, "-V"))
	require.Contains(t, runPython(t, "-m", "site"), env.SitePackages)
	require.Equal(t, "1 x\n", runPython(t, "-I", script(t, "import sys; print(sys.flags.isolated, sys.argv[1])"), "x"))
	require.Equal(t, "True\n", runPython(t, "-c", "import threading; print(threading.current_thread() is threading.main_thread())"))
	require.Equal(t, "utf-8 grüße\n", runPython(t, "-c", "import sys; print(sys.getfilesystemencoding(), sys.argv[1])", "grüße"))

	cmd := command(t)
	cmd.Stdin = strings.NewReader("print(6 * 7)\n")
	out := testenv.Must(cmd.Output())(t)
	require.Equal(t, "42\n", string(out))

	cmd = command(t, "-c", "print(1)")
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	require.NoError(t, cmd.Run())
}

func TestExitStatus(t *testing.T) {
	for code, want := range map[string]int{
		"import sys; sys.exit(7)":      7,
		"import sys; sys.exit('text')": 1,
		"1/0":                          1,
		"import os; os._exit(3)":       3,
	} {
		require.Equal(t, want, status(t, command(t, "-c", code).Run()), code)
	}
	require.Equal(t, 2, status(t, command(t, "--no-such-option").Run()))
	require.Equal(t, "bye\nat exit\n", runPython(t, "-c", "import atexit; atexit.register(print, 'at exit'); print('bye')"))
}

func TestInterrupt(t *testing.T) {
	cmd := command(t, "-c", `
import time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("ready", flush=True)
time.sleep(60)
`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	for _, want := range []string{"ready\n", "interrupted\n", "ready\n"} {
		line := testenv.Must(lines.ReadString('\n'))(t)
		require.Equal(t, want, line)
		if want == "ready\n" {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	ws := exit.Sys().(syscall.WaitStatus)
	require.True(t, ws.Signaled() && ws.Signal() == syscall.SIGINT, "an interrupt that is not caught ends python by the signal: %v", err)
}

func TestSignals(t *testing.T) {
	require.Equal(t, "True True True True\n", runPython(t, "-c", `
import signal as s
print(s.getsignal(s.SIGINT) is s.default_int_handler, s.getsignal(s.SIGCHLD) == s.SIG_DFL,
      s.getsignal(s.SIGTERM) == s.SIG_DFL, s.getsignal(s.SIGPIPE) == s.SIG_IGN)
`))
	require.Equal(t, "got 10\n", runPython(t, "-c", `
import os, signal
signal.signal(signal.SIGUSR1, lambda n, f: print("got", n))
os.kill(os.getpid(), signal.SIGUSR1)
`))
}

func TestBuiltinModule(t *testing.T) {
	require.Equal(t, "built-in\n", runPython(t, "-c", "import usmbridge; print(usmbridge.__spec__.origin)"))
}

func TestPackageAsProgram(t *testing.T) {
	for _, args := range [][]string{{"-m", "usmbridge"}, {"-musmbridge"}, {"-W", "ignore", "-Im", "usmbridge"}} {
		require.Regexp(t, `^usmbridge [0-9.]+, go`, runPython(t, args...))
	}
	require.Contains(t, runPython(t, "-m", "usmbridge", "--json"), `"default_device": `)
	require.Equal(t, 2, status(t, command(t, "-m", "usmbridge", "--no-such").Run()))
}

func TestNamePackage(t *testing.T) {
	for text, want := range map[string]string{
		"-m usmbridge --json":                         "-m usmbridge.__main__ --json",
		"-musmbridge":                                 "-musmbridge.__main__",
		"-Bm usmbridge":                               "-Bm usmbridge.__main__",
		"-X dev -W ignore -m usmbridge":               "-X dev -W ignore -m usmbridge.__main__",
		"-Xdev -mpytest -m usmbridge":                 "-Xdev -mpytest -m usmbridge",
		"-c pass -m usmbridge":                        "-c pass -m usmbridge",
		"script.py -m usmbridge":                      "script.py -m usmbridge",
		"- -m usmbridge":                              "- -m usmbridge",
		"-W -m -m usmbridge":                          "-W -m -m usmbridge.__main__",
		"--check-hash-based-pycs always -m usmbridge": "--check-hash-based-pycs always -m usmbridge.__main__",
		"-m": "-m",
		"":   "",
	} {
		require.Equal(t, strings.Fields(want), namePackage(strings.Fields(text)), text)
	}
}

func TestChildren(t *testing.T) {
	text := `
import multiprocessing, os, subprocess, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import usmbridge

def work(x):
    import usmbridge
    return x * 2, usmbridge.__name__

if __name__ == "__main__":
    method = sys.argv[1]
    with multiprocessing.get_context(method).Pool(2) as pool:
        print(pool.map(work, [1, 2, 3]))
    out = subprocess.run([sys.executable, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    print(out.stdout.strip() == sys.prefix)
`
	want := "[(2, 'usmbridge'), (4, 'usmbridge'), (6, 'usmbridge')]\nTrue\n"
	for _, method := range []string{"spawn", "fork", "forkserver"} {
		t.Run(method, func(t *testing.T) {
			require.Equal(t, want, runPython(t, script(t, text), method))
		})
	}
	t.Run("os.fork", func(t *testing.T) {
		require.Equal(t, "5\n", runPython(t, "-W", "ignore", "-c", `
import os, sys, usmbridge
pid = os.fork()
if pid == 0:
    sys.exit(5)  # a normal exit, which finalizes the interpreter
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`))
	})
}

// TestChildrensProgram: multiprocessing starts this program in either order of imports, and the module
// multiprocessing.spawn is otherwise unchanged.
func TestChildrensProgram(t *testing.T) {
	exe := testenv.Must(os.Executable())(t)
	for _, order := range []string{"import usmbridge, multiprocessing.spawn as s", "import multiprocessing.spawn as s, usmbridge"} {
		out := runPython(t, "-c", order+`
import sys
print(s.get_executable().decode() if isinstance(s.get_executable(), bytes) else s.get_executable())
print(type(s.__loader__).__name__, s.__spec__.loader is s.__loader__, [f for f in sys.meta_path if type(f).__name__ == "Children"])
`)
		require.Equal(t, exe+"\nSourceFileLoader True []\n", out, order)
	}
	require.Equal(t, "False\n", runPython(t, "-c", "import sys, usmbridge; print('multiprocessing' in sys.modules)"))
}

func TestThreadsAtExit(t *testing.T) {
	// Threads and objects that are alive when Python ends do not disturb the end.
	require.Equal(t, "done\n", runPython(t, "-c", `
import threading, usmbridge, time
keep = [usmbridge.zeros(4, device="host") for _ in range(10)]
class Cycle: pass
c = Cycle(); c.me = c; c.a = usmbridge.zeros(3, device="host")
threading.Thread(target=lambda: [usmbridge.zeros(2, device="host") for _ in range(10**9)], daemon=True).start()
time.sleep(0.05)
print("done")
`))
}

func TestDpctl(t *testing.T) {
	env := testpython.Need(t)
	if _, err := os.Stat(filepath.Join(env.SitePackages, "dpctl")); err != nil {
		testenv.Missing(t, "the environment has no dpctl, whose tests usmpython runs", testenv.Peers)
	}
	if _, err := os.Stat(filepath.Join(env.SitePackages, "pytest")); err != nil {
		testenv.Missing(t, "the environment has no pytest, which runs dpctl's tests", testenv.Peers)
	}
	icd := filepath.Join(env.Prefix, "lib", "libintelocl.so")
	if _, err := os.Stat(icd); err == nil && os.Getenv("OCL_ICD_FILENAMES") == "" {
		t.Setenv("OCL_ICD_FILENAMES", icd)
	}
	const unsteady = "test_memory_copy_between_contexts"
	out := runPython(t, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not "+unsteady,
		"--pyargs", "dpctl.tests.test_sycl_usm")
	require.Regexp(t, `[1-9][0-9]* passed`, out)
	require.NotContains(t, out, "failed")
	t.Run(unsteady, func(t *testing.T) {
		t.Skip("the OpenCL CPU driver loses or never ends copies between sub-devices on a busy machine, under the plain interpreter too")
	})
}

func TestNoPython(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-c", "pass")
	cmd.Env = []string{mainEnv + "=1", "PATH="}
	out, err := cmd.CombinedOutput()
	require.Equal(t, 1, status(t, err))
	require.Contains(t, string(out), "usmpython: python: no usable Python found")
	require.False(t, errors.Is(err, exec.ErrNotFound))
}
