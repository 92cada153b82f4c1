package flight

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// If the connection of a put or a get breaks at any point, the former tensor stays unchanged, no
// part of the new one is stored, and both sides release all memory.
func TestCutAtEveryStage(t *testing.T) {
	const size = 24 << 20
	b := newTestbed(t, nil)
	former, next := numbers(t, b.mine, 10, 3), numbers(t, b.mine, size/4)
	defer former.Release()
	defer next.Release()
	require.NoError(t, b.client.Put(t.Context(), "x", former))
	require.NoError(t, b.client.Put(t.Context(), "big", next))
	kept := b.pool.Stats().RequestedBytes.Current
	mine := b.mine.Stats().RequestedBytes.Current
	stages := []int64{0, 9, 40, 150, 400, 900, 5000, 70_000, 1 << 20, 5 << 20, 20 << 20}
	for i, n := range append(stages, stages...) {
		cut := &cutter{to: b.at.Address, up: n, down: -1}
		if i >= len(stages) {
			cut.up, cut.down = -1, n
		}
		t.Run(fmt.Sprintf("up %d down %d", cut.up, cut.down), func(t *testing.T) {
			at := Location{"grpc+unix", filepath.Join(t.TempDir(), "p")}
			l := testenv.Must(at.Listen())(t)
			cut.start(l)
			c := dial(t, at.String(), ClientOptions{})
			put := c.Put(t.Context(), "x", next)
			got, get := c.Get(t.Context(), "big", b.mine)
			if get == nil {
				got.Release()
			}
			if cut.up >= 0 {
				require.Error(t, put)
			} else {
				require.Error(t, get)
			}
			require.NoError(t, c.Close())
			l.Close()
			cut.wait.Wait()
			if put == nil { // the reply arrived, so the new tensor is stored
				require.NoError(t, b.client.Put(t.Context(), "x", former))
			}
			waitReleased(t)
			require.Eventually(t, func() bool {
				return b.server.Stats().Streams == 0 && b.pool.Stats().RequestedBytes.Current == kept && b.mine.Stats().RequestedBytes.Current == mine
			}, time.Minute, time.Millisecond)
			require.Equal(t, []string{"big", "x"}, b.server.Store().Names(""))
			sameCopy(t, former, testenv.Must(b.client.Get(t.Context(), "x", b.mine))(t))
		})
	}
}

// cutter forwards connections to a Unix socket. After a number of bytes in one direction it closes
// both ends, as the kernel does for a killed process.
type cutter struct {
	to       string // path of the Unix socket
	up, down int64  // bytes to the server and from it before the cut; negative: no limit

	wait sync.WaitGroup
}

// start forwards the connections of the listener until it is closed.
func (c *cutter) start(l net.Listener) { c.wait.Go(func() { c.serve(l) }) }

func (c *cutter) serve(l net.Listener) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("unix", c.to)
		if err != nil {
			from.Close()
			continue
		}
		c.wait.Go(func() { pass(to, from, c.up) })
		c.wait.Go(func() { pass(from, to, c.down) })
	}
}

func pass(dst, src net.Conn, n int64) {
	if n < 0 {
		_, _ = io.Copy(dst, src)
	} else {
		_, _ = io.CopyN(dst, src, n)
	}
	dst.Close()
	src.Close()
}
