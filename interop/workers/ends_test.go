//go:build cgo && linux

package workers_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestCancelledCallsKeepTheWorker cancels calls at random times, and checks that interrupted calls do not end the
// worker.
func TestCancelledCallsKeepTheWorker(t *testing.T) {
	p := open(t, workers.Config{Grace: time.Minute})
	flag := memory(t, segment.PeersWrite).flag()
	before := p.Workers()[0].PID
	kinds := map[error]int{}
	for range 1500 {
		ctx, cancel := context.WithCancel(limited(t))
		timer := time.AfterFunc(time.Duration(rand.IntN(60))*time.Microsecond, cancel)
		_, err := p.Call(ctx, "models:forever", flag)
		timer.Stop()
		cancel()
		kind := python.ErrNotBegun
		if !errors.Is(err, kind) {
			kind = python.ErrInterrupted
			require.ErrorIs(t, err, kind)
		}
		kinds[kind]++
	}
	t.Log(kinds)
	require.Equal(t, before, p.Workers()[0].PID)
}

// TestAnswerTooLong checks that an answer with too many arrays, or an exception with too long texts, is an error of
// its call and does not end the worker.
func TestAnswerTooLong(t *testing.T) {
	p := open(t, workers.Config{MaxMessage: 64 << 10, Modules: []workers.Module{{Name: "long", Source: `
import usmbridge
def arrays(n): return [usmbridge.zeros((1,) * 60, "uint8", device="host", interprocess=True) for _ in range(n)]
def name(): raise type("x" * (2 << 20), (LookupError,), {})("named so")
def classes():
    c = ValueError
    for i in range(300): c = type("c%d_" % i + "y" * 8192, (c,), {})
    raise c("many")
def text(): raise ValueError("\x01" * 200000 + "the end")
def frames(n=0):
    if n == 100: raise ValueError("\x02" * (1 << 20) + "the end")
    frames(n + 1)
`}}})
	ctx := limited(t)
	before := p.Workers()[0].PID
	v, err := p.Call(ctx, "long:arrays", 4000)
	releaseAll(v)
	require.ErrorIs(t, err, workers.ErrTooLong)
	for _, c := range []struct {
		function string
		class    python.Exception
		text     string
	}{
		{"long:name", python.LookupError, "named so"}, {"long:classes", python.ValueError, "many"},
		{"long:text", python.ValueError, "the end"}, {"long:frames", python.ValueError, "the end"},
	} {
		_, err := p.Call(ctx, c.function)
		require.ErrorIs(t, err, c.class, c.function)
		pe := testenv.As[*python.Error](t, err)
		require.Contains(t, pe.Message, c.text)
		require.NotErrorIs(t, err, workers.ErrDied)
	}
	require.Equal(t, before, p.Workers()[0].PID)
	v = testenv.Must(p.Call(ctx, "long:arrays", 3))(t)
	releaseAll(v)
}

func releaseAll(v any) {
	all, _ := v.([]any)
	for _, a := range all {
		a.(*usmarray.Array).Release()
	}
}

// TestDeathBetweenResults checks that the death of a worker while its results are opened is an error of that call.
func TestDeathBetweenResults(t *testing.T) {
	p := open(t, workers.Config{Restarts: 1000, Window: time.Millisecond, Modules: []workers.Module{{Name: "many", Source: `
import usmbridge
kept = [usmbridge.zeros(1, "uint8", device="host", interprocess=True) for _ in range(2000)]
def arrays(): return kept
`}}})
	for range 30 { // until it is killed before its results are opened
		ctx, cancel := context.WithCancel(limited(t))
		require.NoError(t, p.Ready(ctx))
		w := p.Workers()[0]
		if w.State != workers.Ready {
			cancel()
			continue
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for p.Workers()[0].Calls == w.Calls { // when Calls changes, the worker has answered and still has its results
				if ctx.Err() != nil {
					return
				}
			}
			_ = syscall.Kill(w.PID, syscall.SIGKILL)
		}()
		v, err := p.Call(ctx, "many:arrays")
		cancel() // ends the goroutine above if the counter did not change
		<-over
		if err != nil {
			require.ErrorIs(t, err, workers.ErrDied)
			d := testenv.As[*workers.Death](t, err)
			require.Equal(t, w.PID, d.PID)
			require.NotErrorIs(t, err, executor.ErrStuck)
			return
		}
		releaseAll(v)
		eventually(t, func() bool { return p.Workers()[0].PID != w.PID }, "the worker is not replaced")
	}
	t.Skip("the worker was never killed before its results were opened")
}

// stalled is an Output whose Write blocks until the channel is closed.
type stalled chan struct{}

func (s stalled) Write(b []byte) (int, error) {
	<-s
	return len(b), nil
}

// TestOutputStalls checks that a blocked Output delays neither the replacement of a worker nor Close.
func TestOutputStalls(t *testing.T) {
	out := make(stalled)
	defer close(out) // only at the end of the test
	p := testenv.Must(workers.New(configured(t, workers.Config{Output: out, Restarts: 100, Window: time.Millisecond})))(t)
	ctx := limited(t)
	require.NoError(t, p.Ready(ctx))
	_, err := p.Call(ctx, "models:exit_at_once", 3)
	require.ErrorIs(t, err, workers.ErrDied)
	d := testenv.As[*workers.Death](t, err)
	require.Contains(t, d.LastOutput, "about to leave")
	require.Equal(t, int64(2), testenv.Must(p.Call(ctx, "models:add", 1))(t))
	require.NoError(t, p.Close(ctx))
}
