package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// rawPeer is a client that sends arbitrary HTTP/2 frames. It answers pings but opens no
// flow-control window by itself.
type rawPeer struct {
	t       *testing.T
	conn    net.Conn
	mu      sync.Mutex
	frames  *http2.Framer
	headers bytes.Buffer
	encoder *hpack.Encoder
	next    uint32
	ended   chan struct{} // the server has closed the connection
	status  chan string   // grpc-status of streams that ended, as long as there is room
}

// newPeer connects to the server. window is the flow-control window of each stream.
func newPeer(t *testing.T, at string, window uint32) *rawPeer {
	t.Helper()
	conn := testenv.Must(net.Dial("tcp", at))(t)
	p := &rawPeer{t: t, conn: conn, frames: http2.NewFramer(conn, conn), next: 1, ended: make(chan struct{}), status: make(chan string, 1000)}
	p.encoder = hpack.NewEncoder(&p.headers)
	p.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	require.NoError(t, testenv.ErrorOf(io.WriteString(conn, http2.ClientPreface)))
	require.NoError(t, p.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	go p.read()
	t.Cleanup(func() {
		conn.Close()
		<-p.ended
	})
	return p
}

func (p *rawPeer) read() {
	defer close(p.ended)
	for {
		f, err := p.frames.ReadFrame()
		if err != nil {
			return
		}
		p.mu.Lock()
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = p.frames.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = p.frames.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == "grpc-status" {
					select {
					case p.status <- h.Value:
					default:
					}
				}
			}
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// call starts a stream.
func (p *rawPeer) call(method string, fields ...hpack.HeaderField) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.headers.Reset()
	for _, f := range append([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, fields...) {
		if err := p.encoder.WriteField(f); err != nil {
			return 0, err
		}
	}
	id := p.next
	p.next += 2
	return id, p.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.headers.Bytes(), EndHeaders: true})
}

// send writes data frames on a stream.
func (p *rawPeer) send(id uint32, data []byte, end bool) error {
	for {
		n := min(len(data), 16<<10)
		p.mu.Lock()
		err := p.frames.WriteData(id, end && n == len(data), data[:n])
		p.mu.Unlock()
		if data = data[n:]; err != nil || len(data) == 0 {
			return err
		}
	}
}

func (p *rawPeer) reset(id uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frames.WriteRSTStream(id, http2.ErrCodeCancel)
}

// message encodes a request with gRPC's prefix.
func message(t *testing.T, q proto.Message) []byte {
	t.Helper()
	b := testenv.Must(proto.Marshal(q))(t)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// served makes n valid calls, which must succeed. On a machine under load, a valid client can
// exceed the short time limits of a test, so that served retries such calls.
func served(t *testing.T, b *testbed, ctx context.Context, n int) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for i := range n {
		q := identity("identity", i%7*1000+1)
		a, err := b.infer(ctx, q)
		for (status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Unavailable) && time.Now().Before(end) {
			a, err = b.infer(ctx, q)
		}
		require.NoError(t, err)
		require1(t, q, a)
	}
}

// drained waits until the server has no calls, requests and memory in use.
func (b *testbed) drained(t *testing.T) {
	t.Helper()
	b.quiet(t)
	require.Eventually(t, func() bool { return b.pool.Stats().RequestedBytes.Current == 0 }, time.Minute, time.Millisecond)
}

// TestWaitingDoesNotCountAsSlowness checks that the time limit for a message does not run while the
// request waits for memory.
func TestWaitingDoesNotCountAsSlowness(t *testing.T) {
	const limit = 8 << 20
	patience := 2 * time.Second
	b := newTestbed(t, engine.Options{Memory: engine.Pool{Limit: limit}}, func(l *limits) { l.patience = patience }, enginetest.Identity())
	holder := testenv.Must(b.engine.Begin(t.Context(), "identity", ""))(t)
	defer holder.End()
	in := testenv.Must(holder.Input("x", "FP32", []int64{limit / 10}))(t)
	require.NoError(t, in.Fill(func([]byte) error { return nil })) // the output takes the same amount
	q := identity("identity", limit/40)
	var calls sync.WaitGroup
	calls.Go(func() {
		a, err := b.infer(t.Context(), q)
		if err != nil {
			t.Error(err)
			return
		}
		require1(t, q, a)
	})
	require.Eventually(t, func() bool { return b.engine.Stats().Requests == 2 }, 30*time.Second, time.Millisecond)
	time.Sleep(2 * patience) // longer than Patience
	holder.End()
	calls.Wait()
}

// TestMissingRequests checks for each method that a call whose request does not arrive ends. An
// idle watch is kept and counted.
func TestMissingRequests(t *testing.T) {
	b := newTestbed(t, engine.Options{}, func(l *limits) { l.patience = 300 * time.Millisecond }, enginetest.Identity())
	for _, method := range []string{"/" + serviceName + "/ServerLive", "/" + serviceName + "/SystemSharedMemoryRegister", "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		s := testenv.Must(b.conn.NewStream(ctx, new(grpc.StreamDesc), method))(t)
		err := s.RecvMsg(new(pb.ServerLiveResponse))
		require.Error(t, err, method)
		require.NoError(t, ctx.Err(), "the server ends it: %s", method)
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch := testenv.Must(healthpb.NewHealthClient(b.conn).Watch(ctx, &healthpb.HealthCheckRequest{}))(t)
	require.NoError(t, testenv.ErrorOf(watch.Recv()))
	require.Equal(t, 1, b.engine.Stats().Calls)
	served(t, b, t.Context(), 1)
	time.Sleep(600 * time.Millisecond) // twice the patience
	require.Equal(t, 1, b.engine.Stats().Calls, "a watch may be idle")
}

// TestHalfMessages checks that messages that stop at any byte end their calls and release all
// memory, and that other calls are served.
func TestHalfMessages(t *testing.T) {
	b := newTestbed(t, engine.Options{Timeout: 2 * time.Second}, func(l *limits) { l.patience = 300 * time.Millisecond }, enginetest.Identity())
	whole := message(t, identity("identity", 20_000))
	cuts := []int{0, 1, 4, 5, 6, 9, 17, 24, 30, 40, 45, 60, 1000, 16 << 10, 70_000, len(whole) - 1}
	for _, method := range []string{inferMethod, streamMethod} {
		p := newPeer(t, b.at, 1<<20)
		open := 0
		for _, n := range cuts {
			if n < 5 && method == streamMethod {
				continue // a stream may be idle
			}
			id := testenv.Must(p.call(method))(t)
			require.NoError(t, p.send(id, whole[:n], false))
			open++
		}
		// A compressed message that announces a small size but can expand to a large one.
		id := testenv.Must(p.call(method, hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"}))(t)
		require.NoError(t, p.send(id, []byte("\x01\x00\x00\x10\x00\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"), false))
		open++
		served(t, b, t.Context(), 20)
		for range open {
			select {
			case s := <-p.status:
				require.Equal(t, strconv.Itoa(int(codes.DeadlineExceeded)), s)
			case <-time.After(time.Minute):
				t.Fatal("a call has not ended")
			}
		}
		// The peer ends the stream before the announced number of bytes.
		for _, n := range cuts {
			id := testenv.Must(p.call(method))(t)
			require.NoError(t, p.send(id, whole[:n], true))
		}
		fine := 0
		for range cuts {
			if s := <-p.status; s == "0" {
				fine++
			}
		}
		require.Equal(t, method == streamMethod, fine == 1, "a stream may end without a request")
		b.drained(t)
	}
}

// TestWindowStalls checks that a peer that answers pings but does not read its responses is
// disconnected, and that the memory of the responses is released.
func TestWindowStalls(t *testing.T) {
	b := newTestbed(t, engine.Options{}, func(l *limits) { l.patience = 300 * time.Millisecond }, enginetest.Identity())
	for _, window := range []uint32{0, 1, 70_000} {
		p := newPeer(t, b.at, window)
		for i := range 6 {
			method := []string{inferMethod, streamMethod}[i%2]
			id, err := p.call(method)
			if err == nil {
				err = p.send(id, message(t, identity("identity", 100_000)), method == inferMethod)
			}
			if i > 0 && err != nil {
				break // on a machine under load, the server may have closed the connection
			}
			require.NoError(t, err)
		}
		served(t, b, t.Context(), 20)
		<-p.ended
		b.drained(t)
	}
}

// TestAbortedCalls checks that ten thousand calls that are aborted at all stages leave no state.
func TestAbortedCalls(t *testing.T) {
	b := newTestbed(t, engine.Options{}, nil, enginetest.Identity())
	whole := message(t, identity("identity", 3000))
	p := newPeer(t, b.at, 1<<20)
	abort := func(i int) error {
		method := inferMethod
		if i%3 == 0 {
			method = streamMethod
		}
		id, err := p.call(method)
		if err != nil {
			return err
		}
		switch i % 4 {
		case 1:
			err = p.send(id, whole[:min(i%300, len(whole))], false)
		case 2:
			err = p.send(id, whole[:i%len(whole)], false)
		case 3:
			err = p.send(id, whole, true)
		}
		if err != nil {
			return err
		}
		return p.reset(id)
	}
	aborted := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 10_000 && err == nil; i++ {
			err = abort(i)
		}
		aborted <- err
	}()
	served(t, b, t.Context(), 100)
	require.NoError(t, <-aborted)
	b.drained(t)
}

// TestIdleConnections checks that a connection without calls is closed, so that a waiting client gets its place,
// and one with an idle stream is not.
func TestIdleConnections(t *testing.T) {
	b := newTestbed(t, engine.Options{}, func(l *limits) { l.idle = 300 * time.Millisecond }, enginetest.Identity())
	s := testenv.Must(b.conn.NewStream(t.Context(), &description.Streams[1], streamMethod, grpc.WaitForReady(true)))(t)
	idle := newPeer(t, b.at, 0)
	select {
	case <-idle.ended:
	case <-time.After(time.Minute):
		t.Fatal("the connection is still open")
	}
	require.NoError(t, s.SendMsg(identity("identity", 1)))
	require.NoError(t, s.RecvMsg(new(pb.ModelStreamInferResponse)))
}
