//go:build cgo && linux

package workers_test

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

const eachSource = `
import os, time
value = "none"
def put(text):
    global value
    value = text
    return text + "!"
def get(text=""): return value
def raises(text): raise KeyError(text)
def number(text): return 1
def spins(text):
    while True: pass
def swallows(text):
    while True:
        try:
            while True: time.sleep(0.001)
        except BaseException: pass
def dies(text): os._exit(3)
def once(text): # succeeds in the first process alone
    if os.path.exists(text): os._exit(3)
    open(text, "w").close()
    return ""
def once_raising(text):
    if os.path.exists(text): raise OSError("gone")
    open(text, "w").close()
    return ""
def once_spinning(text):
    if os.path.exists(text): spins(text)
    open(text, "w").close()
    return ""
`

// TestCallEach checks that a call reaches every worker beside its calls, and its outcomes.
func TestCallEach(t *testing.T) {
	p := open(t, workers.Config{Workers: 2, Least: 2, Grace: 200 * time.Millisecond, Modules: []workers.Module{{Name: "each", Source: eachSource}}})
	m := memory(t, segment.PeersWrite)
	ctx := limited(t)
	calls := func(ctx context.Context, function string) (string, error) {
		return p.CallEach(ctx, "key", "each:"+function, "text")
	}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	going, release := []<-chan error{}, m.flag()
	for range 2 {
		flag := m.flag()
		going = append(going, started(p, ctx, "models:until", flag, release))
		eventually(t, func() bool { return isSet(flag) }, "the call begins")
	}
	require.Equal(t, "text!", testenv.Must(calls(ctx, "put"))(t), "beside calls that occupy all workers")
	require.NoError(t, release.SetAt(uint8(1), 0))
	for _, over := range going {
		require.NoError(t, <-over)
	}
	for range 8 {
		require.Equal(t, "text", testenv.Must(p.Call(ctx, "each:get"))(t))
	}
	require.ErrorIs(t, testenv.ErrorOf(calls(ctx, "raises")), python.KeyError)
	require.Error(t, testenv.ErrorOf(calls(ctx, "number")))
	require.Error(t, testenv.ErrorOf(calls(ctx, "nothing")))
	require.ErrorIs(t, testenv.ErrorOf(p.CallEach(ctx, "", "each", "")), python.ValueError)
	require.ErrorIs(t, testenv.ErrorOf(calls(short(), "spins")), python.ErrInterrupted)
	for _, w := range p.Workers() {
		require.Zero(t, w.Restarts)
	}
	err := testenv.ErrorOf(calls(short(), "swallows"))
	require.ErrorIs(t, err, executor.ErrStuck)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, testenv.ErrorOf(calls(ctx, "dies")), workers.ErrDied)
	eventually(t, func() bool { return p.Health() == nil }, "the workers restart")
	restarts := 0
	for _, w := range p.Workers() {
		restarts += w.Restarts
	}
	require.Equal(t, 2, restarts, "each of them ended one process")
	for range 8 {
		require.Equal(t, "text", testenv.Must(p.Call(ctx, "each:get"))(t), "new processes repeat the last successful call")
	}
}

// TestCallEachIsRepeated checks the calls that a worker repeats when it starts: the last successful one of each key. A call
// that fails there does not keep the worker from starting.
func TestCallEachIsRepeated(t *testing.T) {
	for name, function := range map[string]string{"raises": "once_raising", "dies": "once", "does not end": "once_spinning"} {
		t.Run(name, func(t *testing.T) {
			out := &sink{}
			p := open(t, workers.Config{Output: out, Grace: 200 * time.Millisecond, StartTime: 5 * time.Second, Modules: []workers.Module{{Name: "each", Source: eachSource}}})
			ctx := limited(t)
			require.NoError(t, testenv.ErrorOf(p.CallEach(ctx, "a", "each:put", "first")))
			require.NoError(t, testenv.ErrorOf(p.CallEach(ctx, "b", "each:"+function, filepath.Join(t.TempDir(), "file"))))
			require.NoError(t, testenv.ErrorOf(p.CallEach(ctx, "a", "each:put", "second")))
			require.NoError(t, testenv.ErrorOf(p.CallEach(ctx, "", "each:put", "not repeated")))
			require.Error(t, testenv.ErrorOf(p.CallEach(ctx, "a", "each:raises", "")))
			pid := p.Workers()[0].PID
			require.NotZero(t, pid)
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			eventually(t, func() bool { w := p.Workers()[0]; return w.State == workers.Ready && w.PID != pid }, "the worker restarts")
			require.Equal(t, "second", testenv.Must(p.Call(ctx, "each:get"))(t))
			if name == "raises" {
				require.Contains(t, out.String(), "worker 0: repeating b: ")
			}
		})
	}
}
