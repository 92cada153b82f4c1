package codec

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

func TestMain(m *testing.M) { memtest.Main(m) }

const bodyField = 7

// blob is an outgoing message with one large field.
type blob struct {
	leases *Leases
	buffer memmgr.Buffer
	n      int
}

func (b *blob) Buffers() (mem.BufferSlice, error) {
	head := protowire.AppendVarint(protowire.AppendTag(nil, bodyField, protowire.BytesType), uint64(b.n))
	data, err := b.buffer.Bytes()
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(head), b.leases.Memory(b.buffer, data[:b.n])}, nil
}

// receivedBlob is a received blob.
type receivedBlob struct {
	pool   memmgr.Resource
	buffer memmgr.Buffer
	n      int
}

func (m *receivedBlob) Receive(in *Incoming) error {
	for {
		num, typ, err := in.Field()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if num != bodyField || m.buffer.Valid() {
			if err := in.Skip(typ); err != nil {
				return err
			}
			continue
		}
		if m.n, err = in.Length(typ); err != nil {
			return err
		}
		if m.buffer, err = memmgr.New(m.pool, memmgr.Request{Size: uintptr(m.n), Tag: "body"}); err != nil {
			var full *memmgr.OutOfMemoryError
			if errors.As(err, &full) {
				return status.Error(codes.ResourceExhausted, err.Error())
			}
			return err
		}
		data, err := m.buffer.Bytes()
		if err != nil {
			return err
		}
		if err := in.ReadFull(data[:m.n]); err != nil {
			return err
		}
	}
}

// testbed is an echo server with a client.
type testbed struct {
	pool   *memmgr.Pool
	gate   *Gate
	server *grpc.Server
	conn   *grpc.ClientConn
	read   atomic.Int64 // bytes that the server read from its connections
	direct atomic.Bool
	wg     sync.WaitGroup
}

// counted counts the bytes read from a connection.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

type countedListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return counted{c, l.n}, err
}

func newTestbed(t *testing.T, limits Limits, options ...memmgr.PoolOption) *testbed {
	t.Helper()
	b := &testbed{pool: memmgr.NewPool(memmgr.Host(), options...), gate: NewGate(limits)}
	b.server = grpc.NewServer(grpc.ForceServerCodecV2(New(0)), grpc.StaticStreamWindowSize(1<<20), grpc.StaticConnWindowSize(4<<20))
	b.server.RegisterService(&grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "echo", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return b.echo(s) }},
	}}, b)
	path := filepath.Join(t.TempDir(), "s")
	l := testenv.Must(net.Listen("unix", path))(t)
	b.wg.Go(func() { _ = b.server.Serve(countedListener{l, &b.read}) })
	b.conn = dial(t, "unix:"+path)
	t.Cleanup(func() {
		require.NoError(t, b.conn.Close())
		b.server.Stop()
		b.wg.Wait()
		waitReleased(t)
		// gRPC does not wait for handlers.
		require.Eventually(t, func() bool { return b.gate.Streams() == 0 && b.gate.InFlight() == 0 }, time.Minute, time.Millisecond)
		require.NoError(t, b.pool.Close())
	})
	return b
}

func dial(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	c := testenv.Must(grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(New(0)), grpc.MaxCallRecvMsgSize(1<<30))))(t)
	return c
}

// waitReleased waits until gRPC holds no buffers. With a broken connection this may take five seconds.
func waitReleased(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { n, _ := Outstanding(); return n == 0 }, time.Minute, 5*time.Millisecond)
}

func (b *testbed) echo(s grpc.ServerStream) (err error) {
	leave, err := b.gate.Enter()
	if err != nil {
		return err
	}
	defer leave()
	var leases Leases
	defer func() {
		if wait := leases.Wait(s.Context()); err == nil {
			err = wait
		}
	}()
	r := NewReceiver(b.gate, s)
	b.direct.Store(r.raw != nil)
	for {
		m := receivedBlob{pool: b.pool}
		err := r.Next(m.Receive)
		if err == nil {
			err = s.SendMsg(&blob{leases: &leases, buffer: m.buffer, n: m.n})
		}
		m.buffer.Release()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (b *testbed) stream(t *testing.T, ctx context.Context) grpc.ClientStream {
	t.Helper()
	return testenv.Must(b.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test/echo", grpc.WaitForReady(true)))(t)
}

func (b *testbed) filled(t *testing.T, n int) memmgr.Buffer {
	t.Helper()
	buffer := testenv.Must(memmgr.New(b.pool, memmgr.Request{Size: uintptr(n)}))(t)
	data := testenv.Must(buffer.Bytes())(t)
	for i := range data[:n] {
		data[i] = byte(i * 7 >> 3)
	}
	return buffer
}

// Messages of all sizes arrive intact in both directions. Afterwards gRPC holds no buffers.
func TestRoundTrip(t *testing.T) {
	b := newTestbed(t, Limits{})
	for _, n := range []int{0, 1, 1023, 1024, 1025, piece - 3, piece, 3*piece + 1, 16<<20 + 5} {
		var leases Leases
		out := b.filled(t, n)
		ctx, cancel := context.WithCancel(t.Context())
		s := b.stream(t, ctx)
		for range 2 {
			require.NoError(t, s.SendMsg(&blob{leases: &leases, buffer: out, n: n}))
			in := receivedBlob{pool: b.pool}
			require.NoError(t, s.RecvMsg(&in))
			want := testenv.Must(out.Bytes())(t)
			require.Equal(t, want[:n], testenv.Must(in.buffer.Bytes())(t)[:in.n])
			in.buffer.Release()
		}
		require.NoError(t, s.CloseSend())
		require.ErrorIs(t, s.RecvMsg(&receivedBlob{pool: b.pool}), io.EOF)
		require.NoError(t, leases.Wait(t.Context()))
		cancel()
		out.Release()
	}
	require.True(t, b.direct.Load(), "gRPC's stream no longer has ReadMessageHeader, Read or RecvCompress: Receiver would read whole messages")
}

// If the resource refuses the allocation, the message stays with the sender: of 64 MiB the server
// reads only the bytes within the flow-control window.
func TestAllocationRefusedBeforeRead(t *testing.T) {
	b := newTestbed(t, Limits{}, memmgr.WithLimit(80<<20))
	out := b.filled(t, 64<<20)
	defer out.Release()
	var leases Leases
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := b.stream(t, ctx)
	require.NoError(t, s.SendMsg(&blob{leases: &leases, buffer: out, n: 64 << 20}))
	err := s.RecvMsg(&receivedBlob{pool: b.pool})
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	cancel()
	_ = leases.Wait(ctx)
	require.Less(t, b.read.Load(), int64(8<<20))
}

// Exceeding a limit of the gate is reported with the matching gRPC code.
func TestLimits(t *testing.T) {
	send := func(t *testing.T, b *testbed, n int) error {
		out := b.filled(t, n)
		defer out.Release()
		var leases Leases
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := b.stream(t, ctx)
		defer func() { cancel(); _ = leases.Wait(ctx) }()
		_ = s.SendMsg(&blob{leases: &leases, buffer: out, n: n})
		in := receivedBlob{pool: b.pool}
		defer func() { in.buffer.Release() }()
		return s.RecvMsg(&in)
	}
	t.Run("message", func(t *testing.T) {
		b := newTestbed(t, Limits{MaxMessage: 1 << 20})
		require.NoError(t, send(t, b, 1<<20-10))
		err := send(t, b, 1<<20)
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "bytes of a message")
	})
	t.Run("streams", func(t *testing.T) {
		b := newTestbed(t, Limits{MaxStreams: 1})
		ctx, cancel := context.WithCancel(t.Context())
		first := b.stream(t, ctx)
		var leases Leases
		out := b.filled(t, 1)
		defer out.Release()
		require.NoError(t, first.SendMsg(&blob{leases: &leases, buffer: out, n: 1}))
		in := receivedBlob{pool: b.pool}
		require.NoError(t, first.RecvMsg(&in))
		in.buffer.Release()
		err := send(t, b, 1)
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "streams at a time")
		cancel()
		require.Eventually(t, func() bool { return b.gate.Streams() == 0 }, time.Minute, time.Millisecond)
		require.NoError(t, send(t, b, 1))
	})
	t.Run("in flight", func(t *testing.T) {
		g := NewGate(Limits{MaxMessage: 100, MaxInFlight: 150})
		require.NoError(t, g.charge(t.Context(), 100))
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { waited <- g.charge(ctx, 60) }()
		cancel()
		require.ErrorIs(t, <-waited, context.Canceled)
		go func() { waited <- g.charge(t.Context(), 60) }()
		g.discharge(100)
		require.NoError(t, <-waited)
		require.EqualValues(t, 60, g.InFlight())
		g.discharge(60)
	})
}

// Buffers that gRPC drops without freeing are released by a garbage collection, which Wait starts.
func TestDroppedBuffers(t *testing.T) {
	pool := memmgr.NewPool(memmgr.Host())
	defer func() { require.NoError(t, pool.Close()) }()
	buffer := testenv.Must(memmgr.New(pool, memmgr.Request{Size: 1 << 20}))(t)
	data := testenv.Must(buffer.Bytes())(t)
	leases := new(Leases)
	var forgotten []mem.Buffer
	for range 3 {
		forgotten = append(forgotten, leases.Memory(buffer, data)) // never freed
	}
	returned := leases.Memory(buffer, data[:5000])
	half := returned.Slice(0, 2000)
	returned.Free()
	half.Free()
	require.Equal(t, 3, leases.held())
	pieces, bytes := Outstanding()
	require.EqualValues(t, 3, pieces)
	require.EqualValues(t, 3<<20, bytes)
	require.Equal(t, 4, buffer.Count())
	runtime.KeepAlive(forgotten) // keeps the buffers reachable until here, whenever the collector runs
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, leases.Wait(ended), context.Canceled)
	waitReleased(t)
	require.Equal(t, 1, buffer.Count())
	buffer.Release()
}

// WaitBelow returns as soon as fewer than n buffers are outstanding.
func TestWaitBelow(t *testing.T) {
	pool := memmgr.NewPool(memmgr.Host())
	defer func() { require.NoError(t, pool.Close()) }()
	buffer := testenv.Must(memmgr.New(pool, memmgr.Request{Size: 4096}))(t)
	defer buffer.Release()
	data := testenv.Must(buffer.Bytes())(t)
	var leases Leases
	a, b := leases.Memory(buffer, data), leases.Memory(buffer, data)
	require.NoError(t, leases.WaitBelow(t.Context(), 3))
	waited := make(chan error)
	go func() { waited <- leases.WaitBelow(t.Context(), 2) }()
	a.Free()
	require.NoError(t, <-waited)
	go func() { waited <- leases.Wait(t.Context()) }()
	b.Free()
	require.NoError(t, <-waited)
}
