package pidfd_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
)

func TestMain(m *testing.M) {
	if os.Getenv("USMBRIDGE_TEST_PIDFD") != "" {
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it or ends
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestWait checks that Wait returns before the process is reaped, and that its exit status remains.
func TestWait(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "USMBRIDGE_TEST_PIDFD=1")
	in := testenv.Must(cmd.StdinPipe())(t)
	require.NoError(t, cmd.Start())
	p := testenv.Must(pidfd.Open(cmd.Process.Pid))(t)
	require.ErrorIs(t, p.WaitUntil(time.Now().Add(10*time.Millisecond)), os.ErrDeadlineExceeded)
	done := make(chan error, 1)
	go func() { done <- p.WaitUntil(time.Now().Add(time.Minute)) }()
	require.NoError(t, in.Close())
	require.NoError(t, <-done)
	require.NoError(t, p.WaitUntil(time.Now().Add(time.Minute)), "it returns again")
	require.NoError(t, cmd.Wait())
	p.Close()
	p.Close()
	require.Error(t, p.Wait())
	require.ErrorIs(t, testenv.ErrorOf(pidfd.Open(cmd.Process.Pid)), syscall.ESRCH)
}

// TestClose checks that Close ends a wait.
func TestClose(t *testing.T) {
	p := testenv.Must(pidfd.Open(os.Getpid()))(t)
	done := make(chan error, 1)
	go func() { done <- p.Wait() }()
	p.Close()
	require.Error(t, <-done)
	require.ErrorIs(t, testenv.ErrorOf(pidfd.Open(0)), syscall.ESRCH)
}
