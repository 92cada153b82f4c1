//go:build linux

package share_test

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
)

// facts returns the payload of a segment frame: a zero ID and 4096 bytes that peers can write.
func facts() []byte { return append(make([]byte, 16), 0, 16, 0, 0, 0, 0, 0, 0, 0, 0) }

// cutOff waits until the server closes the connection.
func cutOff(t *testing.T, c *net.UnixConn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(soon)))
	for {
		n, err := c.Read(make([]byte, 1<<14))
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		if n == 0 || err != nil {
			return
		}
	}
}

// TestForeignDescriptors checks that a descriptor that is not shared memory closes the connection
// that sent it, and that closing this descriptor delays no other connection.
func TestForeignDescriptors(t *testing.T) {
	s := listen(t, share.Options{Connected: func(*share.Peer) {}})
	for name, open := range map[string]func() (int, error){
		"a device": func() (int, error) { return syscall.Open(os.DevNull, syscall.O_RDWR|syscall.O_CLOEXEC, 0) },
		"a pipe": func() (int, error) {
			var fds [2]int
			err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK)
			_ = syscall.Close(fds[1])
			return fds[0], err
		},
		"a socket that lingers": func() (int, error) {
			fd, release := lingeringFor(t, 1)
			t.Cleanup(release)
			return fd, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rogue(t, s, true)
			dropped := make(chan error, 1)
			fd := testenv.Must(open())(t)
			var err error
			_, _, err = r.WriteMsgUnix(frameOf(3, 0, facts()), syscall.UnixRights(fd), nil)
			require.NoError(t, err)
			// The server then holds the last reference.
			go func() { dropped <- syscall.Close(fd) }()
			cutOff(t, r)
			eventually(t, func() bool { return s.Stats() == share.Stats{} }, "the connection is still open")
			p, err := share.Dial(background(t), s.Address(), share.Options{})
			require.NoError(t, err, "other connections are not served")
			hangUp(t, p)
			require.NoError(t, <-dropped)
		})
	}
}

// TestOutOfDescriptors checks that a process that cannot receive the descriptor of a segment for
// lack of free descriptors rejects the segment and keeps the connection.
func TestOutOfDescriptors(t *testing.T) {
	s := listen(t, share.Options{})
	r := rogue(t, s, true)
	there := s.Peers()[0]
	f := testenv.Opened(os.Open(os.DevNull))(t)
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	low := old
	low.Cur = uint64(f.Fd()) + 4
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low))
	var fill []int
	for {
		fd, err := syscall.Dup(int(f.Fd()))
		if err != nil {
			break
		}
		fill = append(fill, fd)
	}
	_, _, sent := r.WriteMsgUnix(frameOf(3, 0, facts()), syscall.UnixRights(int(f.Fd())), nil)
	reply := make([]byte, 1<<14)
	read := r.SetReadDeadline(time.Now().Add(soon))
	n, got := r.Read(reply)
	for _, fd := range fill {
		_ = syscall.Close(fd)
	}
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old))
	require.NoError(t, sent)
	require.NoError(t, read)
	require.NoError(t, got)
	require.Equal(t, frameOf(12, 0, make([]byte, 16)), reply[:n], "no request to send the segment again")
	require.NoError(t, there.Err())
	require.Equal(t, []*share.Peer{there}, s.Peers())
}

// TestDialDeadServer checks that Dial does not wait for a dead server whose child process still
// holds the listening socket.
func TestDialDeadServer(t *testing.T) {
	o := start(t, "holder", "")
	address := o.line()
	answered := make(chan error, 1)
	// The dial starts while the process lives. The connection is never accepted.
	go func() { answered <- testenv.ErrorOf(share.Dial(background(t), address, share.Options{})) }()
	require.NoError(t, o.cmd.Process.Kill())
	_, err := o.cmd.Process.Wait() // keeps the child's standard input open until the test ends
	require.NoError(t, err)
	require.ErrorIs(t, <-answered, share.ErrDied)
	require.ErrorIs(t, testenv.ErrorOf(share.Dial(background(t), address, share.Options{})), share.ErrDied)
	require.ErrorIs(t, testenv.ErrorOf(share.Listen(background(t), address, share.Options{})), syscall.EADDRINUSE)
}
