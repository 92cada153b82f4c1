//go:build linux

package share_test

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// facts are those of a segment frame: a name of zeros and 4096 bytes that peers may write.
func facts() []byte { return append(make([]byte, 16), 0, 16, 0, 0, 0, 0, 0, 0, 0, 0) }

// cutOff waits until the server hangs up.
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

// lingering makes a socket whose close takes the kernel a second, since its other end reads
// nothing.
func lingering(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	at, ok := l.Addr().(*net.TCPAddr)
	require.True(t, ok)
	require.NoError(t, syscall.Connect(fd, &syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte{127, 0, 0, 1}}))
	end, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, end.Close()) })
	require.NoError(t, syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1}))
	require.NoError(t, syscall.SetNonblock(fd, true))
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 1<<16))
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	return fd
}

// What is no memory is not looked at, cuts off who sent it, and is closed where nobody waits,
// however long that takes.
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
		"a socket that lingers": func() (int, error) { return lingering(t), nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := rogue(t, s, true)
			dropped := make(chan error, 1)
			fd, err := open()
			require.NoError(t, err)
			_, _, err = r.WriteMsgUnix(frameOf(3, 0, facts()), syscall.UnixRights(fd), nil)
			require.NoError(t, err)
			// The last reference is then the one that is on its way.
			go func() { dropped <- syscall.Close(fd) }()
			cutOff(t, r)
			eventually(t, func() bool { return s.Stats() == share.Stats{} }, "not over")
			p, err := share.Dial(background(t), s.Address(), share.Options{})
			require.NoError(t, err, "others are served")
			hangUp(t, p)
			require.NoError(t, <-dropped)
		})
	}
}

// A process that has no descriptor left for a segment refuses what lies in it, and keeps the
// connection.
func TestNoDescriptorLeft(t *testing.T) {
	s := listen(t, share.Options{})
	r := rogue(t, s, true)
	there := s.Peers()[0]
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
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
	require.Equal(t, frameOf(12, 0, make([]byte, 16)), reply[:n], "it asks that the segment be shown again")
	require.NoError(t, there.Err())
	require.Equal(t, []*share.Peer{there}, s.Peers())
}

// What a maker hands over on a connection that Server.Open made is refused: nobody is told
// of the connection.
func TestNoGiftsToOpeners(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	peers := make(chan *share.Peer, 1)
	from := listen(t, share.Options{Connected: func(p *share.Peer) { peers <- p }})
	x := counting(t, pool, 4)
	h, err := from.Export(background(t), x, share.ExportOptions{})
	require.NoError(t, err)
	s := listen(t, share.Options{Connected: func(*share.Peer) {}})
	a, err := s.Open(background(t), h)
	require.NoError(t, err)
	err = (<-peers).Give(background(t), "x", x)
	require.ErrorIs(t, err, share.ErrRefused)
	a.Release()
}

// Closing a server releases what it was handed over and nobody received, of those too that
// are gone.
func TestCloseReleasesGiftsOfTheGone(t *testing.T) {
	pool := newPool(t, segment.PeersWrite)
	x := counting(t, pool, 4)
	peers := make(chan *share.Peer, 1)
	s, err := share.Listen(background(t), "", share.Options{Connected: func(p *share.Peer) { peers <- p }})
	require.NoError(t, err)
	p, err := share.Dial(background(t), s.Address(), share.Options{})
	require.NoError(t, err)
	there := <-peers
	require.NoError(t, p.Give(background(t), "x", x))
	r := rogue(t, s, true) // another, which is over with nothing
	_, err = r.Write(frameOf(99, 0, nil))
	require.NoError(t, err)
	cutOff(t, r)
	<-peers
	share.Break(p)
	<-there.Done()
	eventually(t, func() bool { return s.Stats().Peers == 0 }, "not over")
	require.Equal(t, 1, there.Stats().Opened, "it can be received yet")
	require.NoError(t, s.Close())
	eventually(t, func() bool { return there.Stats().Opened == 0 && there.Stats().Mapped == 0 }, "it stays")
	_, _, err = there.Receive(background(t))
	require.ErrorIs(t, err, share.ErrClosed)
}

// A server that is gone, and whose child holds the socket, is not waited for.
func TestDialTheDead(t *testing.T) {
	o := start(t, "holder", "")
	address := o.line()
	answered := make(chan error, 1)
	go func() { // begins while the process lives, and is accepted by nobody
		_, err := share.Dial(background(t), address, share.Options{})
		answered <- err
	}()
	require.NoError(t, o.cmd.Process.Kill())
	_, err := o.cmd.Process.Wait() // which leaves the child its standard input, until the end of the test
	require.NoError(t, err)
	require.ErrorIs(t, <-answered, share.ErrDied)
	_, err = share.Dial(background(t), address, share.Options{})
	require.ErrorIs(t, err, share.ErrDied)
	_, err = share.Listen(background(t), address, share.Options{})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

// Who gave up waiting for a gift is not counted as one who waits.
func TestReceiveGivenUp(t *testing.T) {
	s := listen(t, share.Options{})
	p := dial(t, s, share.Options{})
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 2)
		for range 2 {
			go func() {
				_, _, err := p.Receive(ctx)
				ended <- err
			}()
		}
		eventually(t, func() bool { return share.Waiting(p) }, "nobody waits")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.ErrorIs(t, <-ended, context.Canceled)
		require.False(t, share.Waiting(p))
	}
}
