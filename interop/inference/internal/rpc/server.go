package rpc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // requests of clients that compress
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/conns"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
)

// Options say what a server serves and what peers may make it do. Only Engine has no
// default; what is 0 is the default.
type Options struct {
	Engine *engine.Engine
	// Control loads and unloads models for clients; nil refuses that.
	Control engine.Control
	// Tenants decides the tenant of a call.
	Tenants oip.TenantRule
	// MaxMessage bounds the bytes of a request; 1 GiB. One that is compressed is bounded
	// unpacked.
	MaxMessage int
	// MaxCalls bounds inference calls and health watches at a time, streams that rest
	// included; 512. MaxTenantCalls bounds those of one tenant; half of it.
	MaxCalls, MaxTenantCalls int
	// MaxConnections bounds connections; 1024. MaxAddressConnections bounds those of one
	// address; half of it. Sockets of this machine's own kind have no address.
	MaxConnections, MaxAddressConnections int
	// Patience is how long a request may take to arrive, and an answer to be taken, besides
	// a second for each MiB; 60 s.
	Patience time.Duration
	// Keepalive is how long a connection may be silent before the peer is asked whether it
	// is there; it has half that time to answer. At least 1 s; 20 s.
	Keepalive time.Duration
	// Traces has the spans of calls that infer; nil for none.
	Traces *traces.Traces
	// Log gets what clients are not told; slog.Default().
	Log *slog.Logger
}

// Server serves an engine by gRPC. Its methods may be called from any goroutine.
type Server struct {
	o       Options
	gate    *codec.Gate
	tenants *share
	known   atomic.Pointer[words]
	grpc    *grpc.Server
	rests   map[string]bool // methods of streams, by their paths
	drained context.Context // ends when Drain begins
	drain   context.CancelFunc
	calls   sync.Pool     // of *exchange
	lead    time.Duration // maxLead, except in tests
}

const (
	// window is how much of a call's messages may be under way unasked.
	window = 512 << 10
	// maxSmall bounds messages that have no tensors.
	maxSmall = 64 << 10
	// ioBuffer is what gRPC reads and writes at a time; each connection has one to read.
	ioBuffer = 64 << 10
)

// New makes a server; Drain or Close ends it. Errors: options that make no sense.
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
	s := &Server{o: o, tenants: newShare(o.MaxTenantCalls), lead: maxLead}
	// The bytes of tensors are charged to the tenant's share of the pool, each before it is
	// read; a bound on all messages together would have a tenant that waits for memory keep
	// others from being read.
	s.gate = codec.NewGate(codec.Limits{MaxMessage: o.MaxMessage, MaxStreams: o.MaxCalls, MaxHeader: maxSmall,
		MaxInFlight: int64(o.MaxMessage) * int64(o.MaxCalls)})
	s.drained, s.drain = context.WithCancel(context.Background())
	s.calls.New = func() any { return new(exchange) }
	// Whose calls one connection carries depends on what tells tenants apart. A client that
	// knows how many it may have waits, where another is refused.
	streams := o.MaxTenantCalls
	if o.Tenants.Header != "" {
		streams = o.MaxCalls
	}
	s.grpc = grpc.NewServer(
		grpc.ForceServerCodecV2(codec.New(maxSmall)),
		grpc.Creds(linkedCredentials()), grpc.InTapHandle(s.timed),
		grpc.MaxRecvMsgSize(maxSmall), grpc.MaxSendMsgSize(1<<31-1),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(2*window),
		grpc.MaxConcurrentStreams(uint32(streams)),
		experimental.BufferPool(new(codec.Frames)),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.MaxHeaderListSize(16<<10), grpc.ConnectionTimeout(20*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: o.Keepalive, Timeout: o.Keepalive / 2}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	s.grpc.RegisterService(&description, s)
	counted{s.grpc, s}.RegisterService(&healthDescription, health{s})
	s.reflected()
	s.rests = resting(s.grpc.GetServiceInfo())
	return s, nil
}

// words are the strings that requests are expected to contain, so that they need not be allocated.
type words struct {
	models []*engine.Model
	known  map[string]string
}

// words returns the words for the current models.
func (s *Server) words() map[string]string {
	models := s.o.Engine.Models()
	if w := s.known.Load(); w != nil && len(w.models) == len(models) && (len(models) == 0 || &w.models[0] == &models[0]) {
		return w.known
	}
	w := &words{models, wordsOf(models)}
	s.known.Store(w)
	return w.known
}

func wordsOf(models []*engine.Model) map[string]string {
	known := map[string]string{}
	add := func(s string) { known[s] = s }
	for _, m := range models {
		meta := m.Meta()
		add(meta.Name)
		for _, v := range meta.Versions {
			add(v)
		}
		for _, tensors := range [][]oip.Tensor{meta.Inputs, meta.Outputs} {
			for _, t := range tensors {
				add(t.Name)
			}
		}
	}
	for d := oip.BOOL; d <= oip.BYTES; d++ {
		add(d.String())
	}
	for _, p := range []string{"", "timeout", "triton_enable_empty_final_response", "priority", "sequence_id", "sequence_start", "sequence_end",
		"shared_memory_region", "shared_memory_offset", "shared_memory_byte_size", "classification", "binary_data"} {
		add(p)
	}
	return known
}

// Serve accepts connections until the server is drained or closed, and returns nil then. It
// closes the listener. Any number of listeners may be served.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(conns.Listen(l, s.o.MaxConnections, s.o.MaxAddressConnections))
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Drain accepts nothing new, ends streams that rest and watches, lets requests that are under
// way end until the context does, and then closes the server. Errors: of the context.
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

// Close breaks all calls off. They end soon afterwards; the engine's Close waits for them. It
// may be called again.
func (s *Server) Close() {
	s.drain()
	s.grpc.Stop()
}

// Calls returns how many inference calls, streams and watches there are.
func (s *Server) Calls() int { return s.gate.Streams() }

// enter counts a call in, or refuses it.
func (s *Server) enter(ctx context.Context) (tenant string, leave func(), err error) {
	if tenant, err = s.tenant(ctx); err != nil {
		return "", nil, s.status(ctx, err)
	}
	if !s.tenants.enter(tenant) {
		return "", nil, s.status(ctx, &oip.Error{Kind: oip.Busy, Message: "this client has as many calls as it may have at a time", RetryAfter: time.Second})
	}
	left, err := s.gate.Enter()
	if err != nil {
		s.tenants.leave(tenant)
		return "", nil, s.status(ctx, &oip.Error{Kind: oip.Busy, Message: "there are as many calls as may be at a time", RetryAfter: time.Second, Err: err})
	}
	return tenant, func() { left(); s.tenants.leave(tenant) }, nil
}

// tenant returns the tenant of a call.
func (s *Server) tenant(ctx context.Context) (string, error) {
	remote := ""
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		remote = p.Addr.String()
	}
	return s.o.Tenants.Of(remote, func() []string { return metadata.ValueFromIncomingContext(ctx, s.o.Tenants.Header) })
}

// status is what a peer is told of an error that its request ended with, which is counted; nil
// stays nil.
func (s *Server) status(ctx context.Context, err error) error { return s.end(ctx, err, true) }

// end is the status of a call that ends with an error, of a request or between requests.
func (s *Server) end(ctx context.Context, err error, request bool) error {
	if err == nil {
		return nil
	}
	told, code := s.told(ctx, err)
	if request {
		s.o.Engine.Refused(told.Kind)
	}
	if told.RetryAfter > 0 && (code == codes.ResourceExhausted || code == codes.Unavailable) {
		_ = grpc.SetTrailer(ctx, pushback(told.RetryAfter))
	}
	return status.Error(code, told.Message)
}

// told returns the protocol's error for err, and its code. At the deadline of a call the context can
// end as cancelled too: gRPC's transport has a timer of its own, and the client cancels the call.
// After the deadline every such error is Deadline.
func (s *Server) told(ctx context.Context, err error) (*oip.Error, codes.Code) {
	e, code := s.classify(ctx, err)
	if deadline, ok := ctx.Deadline(); ok && code == codes.Canceled && !time.Now().Before(deadline) {
		return &oip.Error{Kind: errExpired.Kind, Message: errExpired.Message, Err: err}, errExpired.Kind.GRPC()
	}
	return e, code
}

func (s *Server) classify(ctx context.Context, err error) (*oip.Error, codes.Code) {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errSlow):
		e := &oip.Error{Kind: oip.Deadline, Message: "the peer sent its request, or took its answer, too slowly", Err: err}
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

// kindOf is the kind of an error that came as a code of gRPC's, for those who count.
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
