//go:build cgo && linux

package executor_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/python"
)

// TestUnlimitedGrace checks the calls of an executor whose callers make them on their own goroutines.
func TestUnlimitedGrace(t *testing.T) {
	e, _ := open(t, executor.Config{Queue: 100, Grace: time.Duration(math.MaxInt64)})
	ready, cancelReady := context.WithTimeout(t.Context(), time.Minute)
	defer cancelReady()
	require.NoError(t, e.Ready(ready))

	ctx, cancel := context.WithCancel(t.Context())
	_, err := e.Call(ctx, "models:forever", cancel) // cancels its own context
	require.ErrorIs(t, err, python.ErrInterrupted)
	require.ErrorIs(t, err, context.Canceled)
	_, err = e.Call(ctx, "models:thread")
	require.ErrorIs(t, err, python.ErrNotBegun)

	testenv.Together(t, 20, func(int) error {
		for range 20 {
			if v, err := e.Call(t.Context(), "models:alone", 1); err != nil || v != int64(1) {
				return fmt.Errorf("got %v and error %w; want one call at a time", v, err)
			}
		}
		return nil
	})
	// A slot delivers its results before it stops counting its calls as running.
	require.Eventually(t, func() bool { return e.Stats().Running == 0 }, time.Minute, time.Millisecond)

	// Close interrupts the call, and calls that wait behind it fail.
	began, over, closed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() { over <- testenv.ErrorOf(e.Call(t.Context(), "models:forever", func() { close(began) })) }()
	<-began
	behind := make(chan error, 1)
	go func() { behind <- testenv.ErrorOf(e.Call(t.Context(), "models:thread")) }()
	for e.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	go func() { closed <- e.Close(ended) }()
	require.ErrorIs(t, <-behind, executor.ErrClosed)
	require.ErrorIs(t, <-over, python.ErrInterrupted)
	require.NoError(t, <-closed)
}
