package codec

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/usmbridge/usmbridge/interop/flight/internal/cuttest"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Both ends release all memory regardless of the point at which a connection breaks.
func TestConnectionsCutAtEveryStage(t *testing.T) {
	const size = 8 << 20
	b := newTestbed(t, Limits{})
	target := filepath.Join(t.TempDir(), "t")
	l, err := net.Listen("unix", target)
	require.NoError(t, err)
	var inner sync.WaitGroup
	inner.Go(func() { _ = b.server.Serve(l) })
	defer inner.Wait()
	defer l.Close()
	stages := []int64{0, 10, 24, 60, 200, 1000, 16 << 10, 100_000, 1 << 20, 3 << 20, size - 100, size + 5000}
	for i, n := range append(stages, stages...) {
		cut := &cuttest.Cutter{To: target, Up: n, Down: -1}
		if i >= len(stages) {
			cut.Up, cut.Down = -1, n
		}
		t.Run(fmt.Sprintf("up %d down %d", cut.Up, cut.Down), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "p")
			l, err := net.Listen("unix", path)
			require.NoError(t, err)
			cut.Start(l)
			conn := dial(t, "unix:"+path)
			out := b.filled(t, size)
			leases := new(Leases)
			ctx, cancel := context.WithCancel(t.Context())
			broken := exchange(ctx, conn, b, leases, out)
			require.Error(t, broken)
			cancel()
			_ = leases.Wait(ctx)
			out.Release()
			require.NoError(t, conn.Close())
			l.Close()
			cut.Wait()
			waitReleased(t)
		})
	}
}

// exchange sends and receives two messages.
func exchange(ctx context.Context, conn grpc.ClientConnInterface, b *testbed, leases *Leases, out memmgr.Buffer) error {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test/echo")
	if err != nil {
		return err
	}
	for range 2 {
		if err := s.SendMsg(&blob{leases: leases, buffer: out, n: 8 << 20}); err != nil {
			return err
		}
		in := receivedBlob{pool: b.pool}
		err := s.RecvMsg(&in)
		in.buffer.Release()
		if err != nil {
			return err
		}
	}
	return s.CloseSend()
}
