//go:build unix

package admission

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
)

// lent is a buffer pool that counts the buffers in use.
type lent struct{ out, got atomic.Int64 }

func (p *lent) Get(n int) *[]byte { b := make([]byte, n); p.out.Add(1); p.got.Add(1); return &b }
func (p *lent) Put(*[]byte)       { p.out.Add(-1) }

// TestLimit checks on TCP and on a Unix socket that no more connections than the limit are open, that a
// waiting client is accepted as soon as one ends, and that Close ends Accept.
func TestLimit(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			inner, err := net.Listen(network, address)
			require.NoError(t, err)
			l := Limit(inner, 2)
			accepted := make(chan net.Conn)
			ended := make(chan error, 1)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						ended <- err
						return
					}
					accepted <- c
				}
			}()
			var clients [3]net.Conn
			var servers []net.Conn
			for i := range clients {
				clients[i], err = net.Dial(network, inner.Addr().String()) // the kernel accepts the third one, too
				require.NoError(t, err)
				defer clients[i].Close()
				if i < 2 {
					servers = append(servers, <-accepted)
				}
			}
			select {
			case <-accepted:
				t.Fatal("accepted more than the limit")
			case <-time.After(50 * time.Millisecond):
			}
			require.NoError(t, servers[0].Close())
			require.Error(t, servers[0].Close(), "closed before")
			third := <-accepted
			require.NoError(t, third.(interface{ CloseWrite() error }).CloseWrite())
			_, err = clients[2].Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, 2, len(l.(*listener).places), "a second Close gives no place")

			require.NoError(t, l.Close())
			require.ErrorIs(t, <-ended, net.ErrClosed)
			require.NoError(t, servers[1].Close())
			require.NoError(t, third.Close())
			require.Zero(t, len(l.(*listener).places))
		})
	}
}

// A connection that waits for bytes holds no buffer, and returns none together with an error.
func TestReadOnReady(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	l := Limit(inner, 1)
	defer l.Close()
	peer, err := net.Dial("unix", inner.Addr().String())
	require.NoError(t, err)
	defer peer.Close()
	c, err := l.Accept()
	require.NoError(t, err)
	defer c.Close()
	r := c.(interface {
		ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
	})
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
