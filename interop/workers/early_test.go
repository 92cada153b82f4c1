//go:build cgo && linux

package workers_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
)

// Environment of roleEarly.
const (
	logEnv   = "USMBRIDGE_TEST_WORKERS_LOG"   // file that each process of the program appends to
	whenEnv  = "USMBRIDGE_TEST_WORKERS_WHEN"  // when the program calls New
	depthEnv = "USMBRIDGE_TEST_WORKERS_DEPTH" // set in workers, and in workers of workers
)

// roleEarly is a program that calls New without Main, or in its workers as well.
func roleEarly() {
	depth := os.Getenv(depthEnv)
	note := func(text string) {
		f, err := os.OpenFile(os.Getenv(logEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.WriteString("[" + depth + "] " + text + "\n")
		}
		if err != nil {
			panic(err)
		}
		_ = f.Close()
	}
	note("started")
	open := func(wait func()) {
		env, err := python.Inspect(os.Getenv(pythonEnv))
		if err != nil {
			panic(err)
		}
		p, err := workers.New(workers.Config{Python: env, Restarts: 1, Env: []string{depthEnv + "=" + depth + "x"}})
		if err != nil {
			note(err.Error())
			return
		}
		err = p.Ready(context.Background())
		wait()
		_ = p.Close(context.Background())
		note(fmt.Sprint("ready: ", err))
	}
	nothing := func() {}
	switch {
	case os.Getenv(whenEnv) == "without Main":
		open(nothing)
		os.Exit(0)
	case depth == "": // the program itself
		workers.Main()
		open(func() { // waits until the worker has called New twice
			for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if text, err := os.ReadFile(os.Getenv(logEnv)); err != nil || strings.Count(string(text), "[x] ") >= 3 {
					break
				}
			}
		})
		os.Exit(0)
	case depth == "x": // a worker: call New before Main and while Main runs, since Main does not return
		open(nothing)
		go func() {
			for os.Getenv("USMBRIDGE_WORKER") != "" { // Main removes it
				time.Sleep(time.Millisecond)
			}
			open(nothing)
		}()
	}
}

// TestNewWithoutMain checks that a program which calls New without Main gets an error and is not
// started again.
func TestNewWithoutMain(t *testing.T) {
	lines := early(t, "without Main")
	require.Len(t, lines, 2, "%q", lines)
	require.Equal(t, "[] started", lines[0])
	require.Contains(t, lines[1], "[] workers: New: this program has not called workers.Main")
	require.Contains(t, lines[1], "call it first in main (in tests, in TestMain)")
}

// TestNewInWorker checks that New is an error in a worker, before Main and while Main runs there.
func TestNewInWorker(t *testing.T) {
	lines := early(t, "in worker")
	require.Len(t, lines, 5, "%q", lines)
	require.Equal(t, "[] started", lines[0])
	require.Equal(t, "[x] started", lines[1])
	for _, line := range lines[2:4] {
		require.Contains(t, line, "[x] workers: New: this process is a worker of another Pool")
	}
	require.Equal(t, "[] ready: <nil>", lines[4])
}

// early runs roleEarly and returns the lines that its processes logged.
func early(t *testing.T, when string) []string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=early", whenEnv+"="+when, logEnv+"="+log, pythonEnv+"="+testpython.Need(t).Executable)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text := testenv.Must(os.ReadFile(log))(t)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
