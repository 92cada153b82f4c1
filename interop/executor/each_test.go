package executor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
)

const eachSource = `
import time
release = False
kept = []
def echo(text):
    kept.append(text)
    return text + "!"
def number(text): return 1
def raises(text): raise KeyError(text)
def spins(text):
    while True: pass
def swallows(text):
    while not release:
        try: time.sleep(0.001)
        except BaseException: pass
    return text
def let(text):
    global release
    release = True
    return text
`

// TestCallEach checks the outcomes of CallEach: results, errors, an interrupted call, and a call that does not stop. That
// one blocks its key, and no other, until it ends.
func TestCallEach(t *testing.T) {
	e, _ := open(t, executor.Config{Grace: 100 * time.Millisecond, Modules: []executor.Module{{Name: "each", Source: eachSource}}})
	call := func(ctx context.Context, key, function string) (string, error) {
		return e.CallEach(ctx, key, "each:"+function, "text")
	}
	require.Equal(t, "text!", testenv.Must(call(t.Context(), "a", "echo"))(t))
	require.ErrorIs(t, testenv.ErrorOf(call(t.Context(), "a", "raises")), python.KeyError)
	require.Error(t, testenv.ErrorOf(call(t.Context(), "a", "number")))
	require.Error(t, testenv.ErrorOf(call(t.Context(), "a", "nothing")))
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	require.ErrorIs(t, testenv.ErrorOf(call(short(), "a", "spins")), python.ErrInterrupted)
	require.Zero(t, e.Stats().Lost)

	err := testenv.ErrorOf(call(short(), "a", "swallows"))
	require.ErrorIs(t, err, executor.ErrStuck)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, e.Stats().Lost)
	require.ErrorIs(t, testenv.ErrorOf(call(t.Context(), "a", "echo")), executor.ErrStuck)
	require.Equal(t, "text!", testenv.Must(call(t.Context(), "b", "echo"))(t))
	require.NoError(t, e.Health(), "the slots are free")
	require.Equal(t, "text", testenv.Must(call(t.Context(), "b", "let"))(t))
	require.Eventually(t, func() bool { return e.Stats().Lost == 0 }, time.Minute, time.Millisecond)
	require.Equal(t, "text!", testenv.Must(call(t.Context(), "a", "echo"))(t))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, testenv.ErrorOf(call(ended, "a", "echo")), context.Canceled)
	require.NoError(t, e.Close(t.Context()))
	require.True(t, errors.Is(testenv.ErrorOf(call(t.Context(), "a", "echo")), executor.ErrClosed))
}
