package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// serviceManager listens for notifications like systemd, with a watchdog period of 2 ms.
func serviceManager(t *testing.T) func() string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	c := testenv.Must(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"}))(t)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(soon)))
	t.Setenv("NOTIFY_SOCKET", name)
	t.Setenv("WATCHDOG_USEC", "2000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	return func() string {
		p := make([]byte, 4096)
		n := testenv.Must(c.Read(p))(t)
		return string(p[:n])
	}
}

// The watchdog is reset while the server is live, and not while it is not.
func TestWatchdog(t *testing.T) {
	next := serviceManager(t)
	log := slog.New(slog.DiscardHandler)
	notify(log, daemon.SdNotifyReady)
	require.Equal(t, "READY=1", next())
	ctx, cancel := context.WithCancel(t.Context())
	var stuck atomic.Bool
	checks := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(ctx, log, func() error {
			select {
			case checks <- struct{}{}:
			case <-ctx.Done():
			}
			if stuck.Load() {
				return errors.New("stuck")
			}
			return nil
		})
	}()
	<-checks
	require.Equal(t, "WATCHDOG=1", next())
	stuck.Store(true)
	for range 5 {
		<-checks
	}
	notify(log, daemon.SdNotifyStopping)
	for message := next(); message != "STOPPING=1"; message = next() {
		require.Equal(t, "WATCHDOG=1", message, "sent before the server was stuck")
	}
	cancel()
	<-ended
}

func TestMemoryLimit(t *testing.T) {
	require.Positive(t, testenv.Must(memoryLimit())(t))
}
