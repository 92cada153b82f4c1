package rpc

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // requests of clients that compress
	"google.golang.org/grpc/experimental"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
)

// limits are the bounds of a server.
type limits struct {
	message int // bytes of a decompressed request
	// patience is the time until a request begins to arrive, and for a response to be read, in addition to
	// perByte. A request that has begun to arrive has the timeout of the engine.
	patience time.Duration
	idle     time.Duration // after which a connection without calls is closed
}

var defaults = limits{message: codec.DefaultMaxMessage, patience: time.Minute, idle: 5 * time.Minute}

// Server serves an engine over gRPC. Its methods may be called from any goroutine.
type Server struct {
	engine  *engine.Engine
	limits  limits
	gate    *codec.Gate
	grpc    *grpc.Server
	drained context.Context // ends when Drain begins
	drain   context.CancelFunc
}

const (
	// window is the HTTP/2 flow-control window of a call.
	window = 512 << 10
	// maxSmall bounds messages without tensors.
	maxSmall = 64 << 10
	// streams bounds the calls of one connection. A client that has as many waits.
	streams = 256
	// ping is the time of silence on a connection after which the server sends a ping. The peer has half of that time
	// to answer.
	ping = 20 * time.Second
	// ioBuffer is the size of gRPC's read and write buffers. Each connection has a read buffer.
	ioBuffer = 64 << 10
)

// New returns a server of an engine, which Drain or Close ends. It exports the spans of inferences to t.
func New(e *engine.Engine, t *traces.Traces) *Server { return newServer(e, t, defaults) }

func newServer(e *engine.Engine, t *traces.Traces, most limits) *Server {
	s := &Server{engine: e, limits: most}
	// The pool bounds the memory of raw contents, so messages together have no bound of their own.
	s.gate = codec.NewGate(codec.Limits{MaxMessage: most.message, MaxInFlight: math.MaxInt64})
	s.drained, s.drain = context.WithCancel(context.Background())
	options := append(t.GRPC(inferMethod, streamMethod),
		grpc.ForceServerCodecV2(codec.New(maxSmall)),
		grpc.Creds(linked{insecure.NewCredentials()}), grpc.InTapHandle(s.timed), grpc.StreamInterceptor(s.admit),
		grpc.MaxRecvMsgSize(maxSmall), grpc.MaxSendMsgSize(1<<31-1),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(2*window),
		grpc.MaxConcurrentStreams(streams),
		experimental.BufferPool(new(codec.Frames)),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.MaxHeaderListSize(16<<10), grpc.ConnectionTimeout(20*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: most.idle, Time: ping, Timeout: ping / 2}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	s.grpc = grpc.NewServer(options...)
	s.grpc.RegisterService(&description, s)
	healthpb.RegisterHealthServer(s.grpc, health{s: s})
	reflection.Register(s.grpc)
	return s
}

// Serve accepts connections until the server is drained or closed, and then returns nil. It must not be called
// after that. It closes the listener. Several listeners may be served.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Drain refuses new calls, ends idle streams and watches, waits for requests in flight until the
// context ends, and closes the server. Errors: that of the context.
func (s *Server) Drain(ctx context.Context) error {
	s.drain()
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	s.grpc.GracefulStop()
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}

// Close ends all calls. They may run a little longer; the Close of the engine waits for them.
// Further calls do nothing.
func (s *Server) Close() {
	s.drain()
	s.grpc.Stop()
}

// admit is the interceptor of all streams: it counts the call, or refuses it. The stream of an inference becomes
// an exchange.
func (s *Server) admit(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer s.survive(&err)
	ctx := stream.Context()
	if err := s.engine.Enter(); err != nil {
		return s.end(ctx, err, true)
	}
	defer s.engine.Leave()
	clock := clockOf(ctx)
	if info.FullMethod == inferMethod || info.FullMethod == streamMethod {
		// Responses are not compressed, also for clients that compress: compressed bytes would be on Go's
		// heap, which has no bound here.
		_ = grpc.SetSendCompressor(ctx, "identity")
		e := &exchange{ServerStream: stream, s: s, ctx: ctx, clock: clock, from: codec.NewReceiver(s.gate, stream),
			leases: new(codec.Leases), q: new(request)}
		defer e.end()
		return handle(srv, e)
	}
	if strings.HasPrefix(info.FullMethod, "/grpc.reflection.") {
		clock.timer.Stop() // it may be idle
	}
	defer context.AfterFunc(s.drained, func() { clock.cancel(oip.ErrDraining) })()
	return s.end(ctx, handle(srv, stream), false)
}

// end returns the gRPC status of the error of a call; nil stays nil. request says that the error belongs to a
// request and is counted.
func (s *Server) end(ctx context.Context, err error, request bool) error {
	if err == nil {
		return nil
	}
	e, code := s.clientError(ctx, err)
	if request {
		s.engine.Refused(e.Kind)
	}
	if e.RetryAfter > 0 && (code == codes.ResourceExhausted || code == codes.Unavailable) {
		_ = grpc.SetTrailer(ctx, pushback(e.RetryAfter))
	}
	return status.Error(code, e.Message)
}

// clientError returns the error that the client gets for err, and its code.
func (s *Server) clientError(ctx context.Context, err error) (*oip.Error, codes.Code) {
	if cause, ok := errors.AsType[*oip.Error](context.Cause(ctx)); ok { // the server has ended the call
		return cause, cause.Kind.GRPC()
	}
	e, code := oip.As(err), codes.OK
	if _, own := errors.AsType[*oip.Error](err); !own {
		if st, ok := status.FromError(err); ok { // of package codec or gRPC
			e, code = &oip.Error{Kind: kindOf(st.Code()), Message: st.Message()}, st.Code()
		} else if e.Kind == oip.Internal {
			s.engine.Options.Log.Error("a call failed", "error", err)
		}
	}
	if code == codes.OK {
		code = e.Kind.GRPC()
	}
	return e, code
}

// kindOf returns the kind of a gRPC code, for the counters.
func kindOf(c codes.Code) oip.Kind {
	switch c {
	case codes.Canceled, codes.Unavailable: // the peer, or its connection, is gone
		return oip.Cancelled
	case codes.DeadlineExceeded:
		return oip.Deadline
	case codes.ResourceExhausted: // larger than a message may be
		return oip.TooLarge
	case codes.Unimplemented:
		return oip.Unsupported
	}
	return oip.Invalid
}
