package conns

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
)

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
			l := Limit(peercred.Listen(inner), 2)
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
				t.Fatal("one more than the limit")
			case <-time.After(50 * time.Millisecond):
			}
			require.NoError(t, servers[0].Close())
			_ = servers[0].Close() // gives no second place
			third := <-accepted

			_, err = clients[2].Write([]byte("x"))
			require.NoError(t, err)
			ready := third.(interface {
				ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
				CloseWrite() error
			})
			pool := mem.DefaultBufferPool()
			buf, n, err := ready.ReadOnReady(8, pool)
			require.NoError(t, err)
			require.Equal(t, "x", string((*buf)[:n]))
			pool.Put(buf)
			require.NoError(t, ready.CloseWrite())
			_, err = clients[2].Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, clients[2].Close())
			buf, _, err = ready.ReadOnReady(8, pool)
			require.ErrorIs(t, err, io.EOF)
			require.Nil(t, buf)

			require.NoError(t, l.Close())
			require.ErrorIs(t, <-ended, net.ErrClosed)
			require.NoError(t, servers[1].Close())
			require.NoError(t, third.Close())
		})
	}
}
