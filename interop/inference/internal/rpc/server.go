package rpc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // requests of clients that compress
	"google.golang.org/grpc/experimental"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/interop/flight/admission"
	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/conns"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
)

// Options configure a server. All except Engine have defaults, for zero values.
type Options struct {
	Engine *engine.Engine
	// Control loads and unloads models for clients; nil refuses that.
	Control engine.Control
	// Tenants decides the tenant of a call.
	Tenants oip.TenantRule
	// MaxMessage bounds the bytes of a decompressed request; 1 GiB.
	MaxMessage int
	// MaxCalls bounds inference calls, idle streams, health watches and reflection; 512. MaxTenantCalls bounds
	// those of one tenant; half of it.
	MaxCalls, MaxTenantCalls int
	// MaxConnections bounds connections; 1024. MaxAddressConnections bounds those of one address
	// group; half of it. Unix sockets have no such bound.
	MaxConnections, MaxAddressConnections int
	// Patience is the time until a request begins to arrive, and for a response to be read, in addition
	// to a second per MiB; 60 s. A request that has begun to arrive has the timeout of the engine.
	Patience time.Duration
	// Keepalive is the time of silence on a connection after which the server sends a ping. The peer
	// has half of that time to answer. At least 1 s; 20 s.
	Keepalive time.Duration
	// Traces exports the spans of inference calls; nil for none.
	Traces *traces.Traces
	// Log gets errors whose details clients must not see; slog.Default().
	Log *slog.Logger
}

// Server serves an engine over gRPC. Its methods may be called from any goroutine.
type Server struct {
	o       Options
	gate    *codec.Gate
	tenants *conns.Counter[string] // calls of each tenant
	grpc    *grpc.Server
	drained context.Context // ends when Drain begins
	drain   context.CancelFunc
	lead    time.Duration // maxLead, except in tests
}

const (
	// window is the HTTP/2 flow-control window of a call.
	window = 512 << 10
	// maxSmall bounds messages without tensors.
	maxSmall = 64 << 10
	// ioBuffer is the size of gRPC's read and write buffers. Each connection has a read buffer.
	ioBuffer = 64 << 10
)

// New returns a server, which Drain or Close ends. Errors: invalid options.
func New(o Options) (*Server, error) {
	if o.Engine == nil {
		return nil, errors.New("rpc: Options.Engine is nil")
	}
	o.MaxMessage = cmp.Or(o.MaxMessage, codec.DefaultMaxMessage)
	o.MaxCalls = cmp.Or(o.MaxCalls, 512)
	o.MaxTenantCalls = cmp.Or(o.MaxTenantCalls, max(o.MaxCalls/2, 1))
	o.MaxConnections = cmp.Or(o.MaxConnections, 1024)
	o.MaxAddressConnections = cmp.Or(o.MaxAddressConnections, max(o.MaxConnections/2, 1))
	o.Patience = cmp.Or(o.Patience, time.Minute)
	o.Keepalive = max(cmp.Or(o.Keepalive, 20*time.Second), time.Second)
	o.Log = cmp.Or(o.Log, slog.Default())
	for _, n := range []int{o.MaxMessage, o.MaxCalls, o.MaxTenantCalls, o.MaxConnections, o.MaxAddressConnections, int(o.Patience)} {
		if n < 0 {
			return nil, errors.New("rpc: a bound in Options is negative")
		}
	}
	s := &Server{o: o, tenants: conns.NewCounter[string](o.MaxTenantCalls), lead: maxLead}
	// The bytes of tensors are charged to the tenant's share of the pool before they are read. With a
	// bound on all messages together, a tenant that waits for memory would delay others.
	s.gate = codec.NewGate(codec.Limits{MaxMessage: o.MaxMessage, MaxStreams: o.MaxCalls, MaxHeader: maxSmall,
		MaxInFlight: int64(o.MaxMessage) * int64(o.MaxCalls)})
	s.drained, s.drain = context.WithCancel(context.Background())
	// The connection of a proxy carries calls of several tenants. A client that knows the maximum number
	// of streams waits, instead of being refused.
	streams := o.MaxTenantCalls
	if o.Tenants.Header != "" {
		streams = o.MaxCalls
	}
	options := append(o.Traces.GRPC(inferMethod, streamMethod),
		grpc.ForceServerCodecV2(codec.New(maxSmall)),
		grpc.Creds(linkedCredentials()), grpc.InTapHandle(s.timed), grpc.StreamInterceptor(s.reflect),
		grpc.MaxRecvMsgSize(maxSmall), grpc.MaxSendMsgSize(1<<31-1),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(2*window),
		grpc.MaxConcurrentStreams(uint32(streams)),
		experimental.BufferPool(new(codec.Frames)),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.MaxHeaderListSize(16<<10), grpc.ConnectionTimeout(20*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: o.Keepalive, Timeout: o.Keepalive / 2}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	s.grpc = grpc.NewServer(options...)
	s.grpc.RegisterService(&description, s)
	healthpb.RegisterHealthServer(s.grpc, health{s})
	reflection.Register(s.grpc)
	return s, nil
}

// Serve accepts connections until the server is drained or closed, and returns nil then. It closes
// the listener. Several listeners may be served.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(admission.Listen(l, admission.Limits{Connections: s.o.MaxConnections, PerClient: s.o.MaxAddressConnections}))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Drain refuses new calls, ends idle streams and watches, waits for requests in flight until the
// context ends, and closes the server. Errors: that of the context.
func (s *Server) Drain(ctx context.Context) error {
	s.drain()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.Close()
	<-done
	return err
}

// Close ends all calls. They may run a little longer; the Close of the engine waits for them.
// Further calls do nothing.
func (s *Server) Close() {
	s.drain()
	s.grpc.Stop()
}

// Calls returns the number of inference calls, streams, watches and streams of reflection.
func (s *Server) Calls() int { return s.gate.Streams() }

// enter counts a call, or refuses it.
func (s *Server) enter(ctx context.Context) (tenant string, leave func(), err error) {
	if tenant, err = s.tenant(ctx); err != nil {
		return "", nil, s.status(ctx, err)
	}
	if !s.tenants.Enter(tenant) {
		return "", nil, s.status(ctx, &oip.Error{Kind: oip.Busy, Message: "this client has too many calls", RetryAfter: time.Second})
	}
	left, err := s.gate.Enter()
	if err != nil {
		s.tenants.Leave(tenant)
		return "", nil, s.status(ctx, &oip.Error{Kind: oip.Busy, Message: "there are too many calls", RetryAfter: time.Second, Err: err})
	}
	return tenant, func() { left(); s.tenants.Leave(tenant) }, nil
}

// reflect is the interceptor of streams of gRPC reflection, by which tools like grpcurl list the services.
// They count as calls, may be idle, and end when the server drains. Other streams have handlers of their own.
func (s *Server) reflect(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	if !strings.HasPrefix(info.FullMethod, "/grpc.reflection.") {
		return handle(srv, stream)
	}
	defer s.survive(&err)
	ctx := stream.Context()
	_, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	clock := clockOf(ctx)
	clock.timer.Stop()
	defer context.AfterFunc(s.drained, func() {
		finish(ctx, codes.Unavailable, "the server is shutting down") // gRPC's own status would be CANCELLED
		clock.cancel(errDraining)
	})()
	return s.end(ctx, handle(srv, stream), false)
}

// tenant returns the tenant of a call.
func (s *Server) tenant(ctx context.Context) (string, error) {
	remote := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		remote = p.Addr.String()
	}
	return s.o.Tenants.Of(remote, func() []string { return metadata.ValueFromIncomingContext(ctx, s.o.Tenants.Header) })
}

// status returns the gRPC status of an error of a request, and counts the error; nil stays nil.
func (s *Server) status(ctx context.Context, err error) error { return s.end(ctx, err, true) }

// end returns the gRPC status of the error of a call. request says that the error belongs to a
// request and is counted.
func (s *Server) end(ctx context.Context, err error, request bool) error {
	if err == nil {
		return nil
	}
	e, code := s.clientError(ctx, err)
	if request {
		s.o.Engine.Refused(e.Kind)
	}
	if e.RetryAfter > 0 && (code == codes.ResourceExhausted || code == codes.Unavailable) {
		_ = grpc.SetTrailer(ctx, pushback(e.RetryAfter))
	}
	return status.Error(code, e.Message)
}

// clientError returns the protocol's error for err, and its code. At the deadline of a call the
// context can end as cancelled too: gRPC's transport has a timer of its own, and the client cancels
// the call. After the deadline every such error is Deadline.
func (s *Server) clientError(ctx context.Context, err error) (*oip.Error, codes.Code) {
	e, code := s.classify(ctx, err)
	if deadline, ok := ctx.Deadline(); ok && code == codes.Canceled && !time.Now().Before(deadline) {
		return &oip.Error{Kind: errExpired.Kind, Message: errExpired.Message, Err: err}, errExpired.Kind.GRPC()
	}
	return e, code
}

func (s *Server) classify(ctx context.Context, err error) (*oip.Error, codes.Code) {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSlow):
		e := &oip.Error{Kind: oip.Deadline, Message: "the peer sent its request, or read the response, too slowly", Err: err}
		return e, e.Kind.GRPC()
	case errors.Is(cause, errDraining):
		e := &oip.Error{Kind: oip.NotReady, Message: "the server is shutting down", RetryAfter: time.Second, Err: err}
		return e, e.Kind.GRPC()
	}
	if own, ok := errors.AsType[*oip.Error](err); ok {
		return own, own.Kind.GRPC()
	}
	// The codec's, and gRPC's own.
	if st, ok := status.FromError(err); ok {
		return &oip.Error{Kind: kindOf(st.Code()), Message: st.Message(), Err: err}, st.Code()
	}
	e := oip.As(err)
	if e.Kind == oip.Internal {
		s.o.Log.Error("a call failed", "error", err)
	}
	return e, e.Kind.GRPC()
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
