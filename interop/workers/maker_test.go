//go:build cgo && linux

package workers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
)

const pythonEnv = "USMBRIDGE_TEST_WORKERS_PYTHON"

// roles are the functions main of other programs of the tests.
var roles = map[string]func(){"maker": roleMaker, "echo": roleEcho}

const addressEnv = "USMBRIDGE_TEST_WORKERS_ADDRESS"

// roleEcho echoes messages of 64 bytes.
func roleEcho() {
	c, err := net.Dial("unix", os.Getenv(addressEnv))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	b := make([]byte, 64)
	for {
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// roleMaker starts two workers, makes a call that does not stop in one of them, prints their process IDs and waits.
func roleMaker() {
	env, err := python.Inspect(os.Getenv(pythonEnv))
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	p, err := workers.New(workers.Config{Workers: 2, Least: 2, Python: env, Modules: []workers.Module{{Name: "hung", Source: `
import ctypes
def held():
    print("held", flush=True)
    ctypes.PyDLL(None).sleep(100000)
`}}, Output: os.Stdout})
	if err == nil {
		err = p.Ready(context.Background())
	}
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	for _, w := range p.Workers() {
		fmt.Println(w.PID)
	}
	_, err = p.Call(context.Background(), "hung:held")
	fmt.Println("error:", err)
}

// TestMakerKilled checks that workers end when the program that started them is killed.
func TestMakerKilled(t *testing.T) {
	env := testpython.Need(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=maker", pythonEnv+"="+env.Executable)
	cmd.Stderr = os.Stderr
	out := testenv.Must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var pids []int
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "held" {
		pid, err := strconv.Atoi(lines.Text())
		require.NoError(t, err, lines.Text())
		pids = append(pids, pid)
	}
	require.Len(t, pids, 2)
	for _, pid := range pids {
		require.False(t, ended(pid))
	}
	require.NoError(t, cmd.Process.Kill())
	for _, pid := range pids {
		eventually(t, func() bool { return ended(pid) }, "a worker outlives its maker")
	}
}

// ended reports whether a process has ended. It may be a zombie.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// TestChildProcessesOfWorkers checks that a process that a worker starts does not inherit its descriptors, is not a worker
// itself, and ends with the worker.
func TestChildProcessesOfWorkers(t *testing.T) {
	p := open(t, workers.Config{Modules: []workers.Module{{Name: "starting", Source: `
import os, subprocess, sys
def descriptors():
    text = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')], 'USMBRIDGE_WORKER' in os.environ)"
    return subprocess.run([sys.executable, "-c", text], close_fds=False, capture_output=True, text=True, check=True).stdout
def child():
    return subprocess.Popen(["sleep", "100000"]).pid
`}}})
	v := testenv.Must(p.Call(limited(t), "starting:descriptors"))(t)
	require.NotContains(t, v, "socket:")
	require.NotContains(t, v, "memfd:")
	require.Contains(t, v, "False")
	v = testenv.Must(p.Call(limited(t), "starting:child"))(t)
	pid := int(v.(int64))
	require.False(t, ended(pid))
	require.NoError(t, syscall.Kill(p.Workers()[0].PID, syscall.SIGKILL))
	eventually(t, func() bool { return ended(pid) }, "a process that a worker started outlives it")
}

// TestWorkersIgnoreSignals checks that workers ignore the signals that end a service: the service ends its workers.
func TestWorkersIgnoreSignals(t *testing.T) {
	p := open(t, workers.Config{})
	before := p.Workers()[0].PID
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		require.NoError(t, syscall.Kill(before, s))
		require.EqualValues(t, before, testenv.Must(p.Call(limited(t), "models:pid"))(t))
	}
}
