package notify

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// manager listens as a service manager does.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return c
}

func next(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	p := make([]byte, 4096)
	n, err := c.Read(p)
	require.NoError(t, err)
	return string(p[:n])
}

func TestTell(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@usmbridge-test-" + strconv.Itoa(os.Getpid())} {
		c := manager(t, name)
		t.Setenv("NOTIFY_SOCKET", name)
		t.Setenv("WATCHDOG_USEC", "2000")
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
		m, err := FromEnv()
		require.NoError(t, err)
		for _, variable := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
			_, there := os.LookupEnv(variable)
			require.False(t, there, variable)
		}
		require.NoError(t, m.Ready())
		require.Equal(t, "READY=1", next(t, c))
		require.NoError(t, m.Status("warming\nup"))
		require.Equal(t, "STATUS=warming up", next(t, c))
		require.NoError(t, m.Stopping())
		require.Equal(t, "STOPPING=1", next(t, c))

		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		var asked atomic.Int64
		go func() {
			defer close(over)
			m.Watch(ctx, func() error {
				if asked.Add(1)%2 == 0 {
					return errors.New("stuck")
				}
				return nil
			})
		}()
		require.Equal(t, "WATCHDOG=1", next(t, c))
		require.Equal(t, "WATCHDOG=1", next(t, c))
		require.GreaterOrEqual(t, asked.Load(), int64(3), "what is stuck is not told to live")
		cancel()
		<-over
	}
}

func TestNobody(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	m, err := FromEnv()
	require.NoError(t, err)
	require.NoError(t, m.Ready())
	m.Watch(context.Background(), func() error { t.Error("nobody asks"); return nil })

	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv("WATCHDOG_PID", "1")
	m, err = FromEnv()
	require.NoError(t, err)
	require.Zero(t, m.period, "another process's")

	for variable, value := range map[string]string{"NOTIFY_SOCKET": "relative", "WATCHDOG_USEC": "-1"} {
		t.Setenv("NOTIFY_SOCKET", "")
		t.Setenv("WATCHDOG_PID", "")
		t.Setenv(variable, value)
		_, err = FromEnv()
		require.Error(t, err, variable)
	}

	t.Setenv("WATCHDOG_USEC", "")
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	m, err = FromEnv()
	require.NoError(t, err)
	require.Error(t, m.Ready())
}
