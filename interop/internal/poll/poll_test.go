package poll_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/internal/poll"
)

func TestDo(t *testing.T) {
	// Without a function, Do is a call.
	require.ErrorIs(t, poll.Do(t.Context(), func(context.Context) error { return context.Canceled }), context.Canceled)

	// The function runs on the goroutine of Do, so calls needs no lock. It ends a wait by the context, and
	// the goroutine that waits does not call it.
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	polled := poll.With(ctx, func() {
		if calls++; calls == 2 {
			cancel()
		}
	})
	require.ErrorIs(t, poll.Do(polled, func(ctx context.Context) error {
		require.Nil(t, poll.Of(ctx))
		<-ctx.Done()
		return ctx.Err()
	}), context.Canceled)
	require.GreaterOrEqual(t, calls, 2)
	require.ErrorIs(t, poll.Closed(polled, make(chan struct{})), context.Canceled)

	// Resume calls the function again only if it has returned early.
	ctx = poll.With(t.Context(), func() {})
	c := make(chan struct{})
	times := 0
	require.NoError(t, poll.Resume(ctx, func(ctx context.Context) error {
		if times++; times == 2 {
			close(c)
		}
		return poll.Closed(ctx, c)
	}))
	require.Equal(t, 2, times)
	require.ErrorIs(t, poll.Resume(ctx, func(context.Context) error { times++; return context.Canceled }), context.Canceled)
	require.Equal(t, 3, times)

	// A panic reaches the caller with its stack.
	defer func() {
		require.Regexp(t, `(?s)^broken\n.*poll_test\.go`, recover())
	}()
	_ = poll.Do(polled, func(context.Context) error { panic("broken") })
}
