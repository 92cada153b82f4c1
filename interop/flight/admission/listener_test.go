package admission

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	grpcpeer "google.golang.org/grpc/peer"
)

func listenHere(t *testing.T, most int) *listener {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	return Listen(l, Limits{Connections: most, PerClient: most}).(*listener)
}

// places returns how many connections of a listener are open, how many of them are provisional, and
// how many address groups they have.
func places(l *listener) [3]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return [3]int{l.all.open, l.all.provisional.Len(), len(l.groups)}
}

func connect(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// A connection beyond the limit waits in the kernel until another one is closed.
func TestConnectionsAreBounded(t *testing.T) {
	l := listenHere(t, 1)
	connect(t, l)
	connect(t, l)
	connect(t, l)
	first, err := l.Accept()
	require.NoError(t, err)
	next := make(chan error)
	accept := func() {
		c, err := l.Accept()
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		next <- err
	}
	go accept()
	select {
	case <-next:
		t.Fatal("accepted a second connection")
	case <-time.After(10 * time.Millisecond):
	}
	require.NoError(t, first.Close())
	require.Error(t, first.Close(), "closed before")
	require.NoError(t, <-next)
	require.Equal(t, [3]int{1, 0, 1}, places(l))
	go accept()
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-next, net.ErrClosed)
	require.Error(t, l.Close(), "closed before")
	require.Equal(t, [3]int{1, 0, 1}, places(l), "the one that is open")
}

// If a limit is reached, the oldest provisional connection is closed for a new one. Confirmed connections
// stay open.
func TestProvisionalConnectionsMakeRoom(t *testing.T) {
	for _, c := range []struct {
		network, address string
		most, perGroup   int
	}{
		{"tcp", "127.0.0.1:0", 8, 2},
		{"tcp", "127.0.0.1:0", 2, 8},
		{"unix", filepath.Join(t.TempDir(), "s"), 2, 1},
	} {
		t.Run(fmt.Sprintf("%s %d of %d", c.network, c.perGroup, c.most), func(t *testing.T) {
			inner, err := net.Listen(c.network, c.address)
			require.NoError(t, err)
			l := Listen(inner, Limits{Connections: c.most, PerClient: c.perGroup, FirstCall: time.Hour}).(*listener)
			defer l.Close()
			connect := func() (client, server net.Conn) {
				client, err := net.Dial(c.network, inner.Addr().String())
				require.NoError(t, err)
				t.Cleanup(func() { client.Close() })
				require.NoError(t, client.SetDeadline(time.Now().Add(30*time.Second)))
				server, err = l.Accept()
				require.NoError(t, err)
				t.Cleanup(func() { server.Close() })
				return client, server
			}
			isClosed := func(client net.Conn) {
				_, err := client.Read(make([]byte, 1))
				require.Error(t, err)
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server closes it")
			}
			isOpen := func(client, server net.Conn) {
				_, err := server.Write([]byte("x"))
				require.NoError(t, err)
				_, err = client.Read(make([]byte, 1))
				require.NoError(t, err)
			}
			pass := func(server net.Conn) {
				Confirm(grpcpeer.NewContext(t.Context(), &grpcpeer.Peer{Addr: server.RemoteAddr()}))
			}

			client1, server1 := connect()
			client2, server2 := connect()
			require.Equal(t, [3]int{2, 2, 1}, places(l))
			client3, server3 := connect()
			isClosed(client1)
			isOpen(client2, server2)
			require.Error(t, server1.Close(), "closed before")
			pass(server1)
			require.Equal(t, [3]int{2, 2, 1}, places(l))

			pass(server2)
			pass(server2)
			require.Equal(t, [3]int{2, 1, 1}, places(l))
			_, server4 := connect()
			isClosed(client3)
			isOpen(client2, server2)
			pass(server3)
			server3.(interface{ expire() }).expire()
			pass(server4)
			server4.(interface{ expire() }).expire()
			require.Equal(t, [3]int{2, 0, 1}, places(l))

			// Without a provisional connection, a new connection is closed at the limit per client, and waits
			// at the total limit.
			client5, err := net.Dial(c.network, inner.Addr().String())
			require.NoError(t, err)
			defer client5.Close()
			require.NoError(t, client5.SetDeadline(time.Now().Add(30*time.Second)))
			accepted := make(chan net.Conn)
			go func() {
				c, _ := l.Accept()
				accepted <- c
			}()
			if c.perGroup < c.most && c.network == "tcp" {
				isClosed(client5)
				require.NoError(t, l.Close())
				require.Nil(t, <-accepted)
			} else {
				require.NoError(t, server4.Close())
				server5 := <-accepted
				isOpen(client5, server5)
				server5.(interface{ expire() }).expire()
				isClosed(client5)
				require.Error(t, server5.Close(), "closed before")
			}
			isOpen(client2, server2)
			require.NoError(t, server2.Close())
			_ = server4.Close()
			require.Equal(t, [3]int{}, places(l))
		})
	}
}

// lent is a buffer pool that counts the buffers in use.
type lent struct{ out, got atomic.Int64 }

func (p *lent) Get(n int) *[]byte { b := make([]byte, n); p.out.Add(1); p.got.Add(1); return &b }
func (p *lent) Put(*[]byte)       { p.out.Add(-1) }

// A connection that waits for bytes holds no buffer, and returns none together with an error.
func TestReadOnReady(t *testing.T) {
	l := listenHere(t, 1)
	defer l.Close()
	peer := connect(t, l)
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	r, ok := c.(interface {
		ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
	})
	if !ok {
		t.Skip("gRPC reads as it does everywhere on this system: ready_other.go")
	}
	var pool lent
	type result struct {
		b   *[]byte
		n   int
		err error
	}
	results := make(chan result)
	go func() {
		for {
			b, n, err := r.ReadOnReady(4, &pool)
			results <- result{b, n, err}
			if err != nil {
				return
			}
		}
	}()
	require.Eventually(t, func() bool { return pool.got.Load() == 1 && pool.out.Load() == 0 }, time.Minute, time.Millisecond, "it found nothing, and waits")
	_, err = peer.Write([]byte("abcdef"))
	require.NoError(t, err)
	for _, want := range []string{"abcd", "ef"} {
		got := <-results
		require.NoError(t, got.err)
		require.Equal(t, want, string((*got.b)[:got.n]))
		pool.Put(got.b)
	}
	require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
	got := <-results
	require.ErrorIs(t, got.err, os.ErrDeadlineExceeded)
	require.Zero(t, pool.out.Load())
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	require.NoError(t, peer.Close())
	b, n, err := r.ReadOnReady(4, &pool)
	require.ErrorIs(t, err, io.EOF)
	require.Nil(t, b)
	require.Zero(t, n)
	require.NoError(t, c.Close())
	_, _, err = r.ReadOnReady(4, &pool)
	require.ErrorIs(t, err, net.ErrClosed)
	require.Zero(t, pool.out.Load())
}

// The limits also apply to a connection that is not a socket, and its bytes are read.
func TestAcceptedPipe(t *testing.T) {
	mine, theirs := net.Pipe()
	defer theirs.Close()
	l := Listen(nil, Limits{Connections: 1, PerClient: 1}).(*listener)
	counted := &counted{Conn: mine, listener: l}
	require.True(t, l.admit(counted))
	c := accepted(counted)
	go func() { _, _ = theirs.Write([]byte("x")) }()
	b := make([]byte, 1)
	_, err := c.Read(b)
	require.NoError(t, err)
	require.Equal(t, [3]int{1, 0, 1}, places(l))
	require.NoError(t, c.Close())
	require.Equal(t, [3]int{}, places(l))
}
