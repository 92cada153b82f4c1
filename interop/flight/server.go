package flight

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/apache/arrow-go/v18/arrow/flight"
	gen "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"

	"github.com/usmbridge/usmbridge/interop/flight/admission"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
)

// ServerOptions configure a server. Only Memory has no default; bounds of 0 are the defaults.
type ServerOptions struct {
	// Memory is the resource of received tensors: a pool, a tenant, a limit. If an allocation fails, the
	// client gets ResourceExhausted. Device memory is received through host USM.
	Memory memmgr.Resource
	// Limits bound messages and streams (codec.Gate).
	Limits codec.Limits
	// MaxTensor limits the bytes of one tensor; by default only Memory limits it.
	MaxTensor int64
	// MaxTensors limits the number of tensors; 65536.
	MaxTensors int
	// MaxConnections bounds connections; 1024. Further clients wait until one is closed. Connections
	// without calls are closed after 5 minutes.
	MaxConnections int
	// Batch is the number of bytes of a tensor in one message, unless the client requests another
	// size (BatchHeader); 1 MiB. A client that reads a whole message before it uses it, as pyarrow does,
	// is faster with several: 64 MiB in one message took 1.6 times as long.
	Batch int
	// MemoryWait is how long a put waits for memory; 2 s. If negative, it does not wait.
	MemoryWait time.Duration
	// Stall is how long a put, a get or a list may continue without moving a byte, and how long the
	// request of a call may take to arrive; 60 s.
	Stall time.Duration
	// Keepalive is how long a connection may be silent before the server probes the client. A client
	// that does not answer within half that time, such as a stopped process, is disconnected, and its
	// calls end. At least 1 s; 20 s.
	Keepalive time.Duration
	// Actions are the service's own functions for DoAction, by type, in addition to ActionFree and
	// ActionStats. Every authenticated client may call them.
	Actions map[string]ActionFunc
	// TLS encrypts connections. With nil they are not encrypted.
	TLS *tls.Config
	// Tokens are the valid tokens. Without tokens every call is accepted. Health checks need no token.
	// Clients without a token can still hold connections: put a proxy in front of a server that
	// strangers can reach.
	Tokens []string

	idle time.Duration // after which a connection without calls is closed; 5 min
}

// ActionFunc answers a DoAction. Body and answer are bytes of at most 1 MiB, in a form that service and
// clients define. It runs on the goroutine of the call; ctx ends with the call. The client receives an
// error as the status of its kind in this package, or as the error's own status.
type ActionFunc func(ctx context.Context, body []byte) ([]byte, error)

// Server serves the tensors of a store by Arrow Flight. Its methods may be called from any goroutine.
type Server struct {
	flight.BaseFlightServer
	o     ServerOptions
	store *Store
	gate  *codec.Gate
	guard guard
	stage *stage
	grpc  *grpc.Server
	work  sync.WaitGroup // work of calls whose handlers have returned
}

// The flow control windows of a stream and of a connection, in bytes.
const (
	window     = 1 << 20
	connWindow = 4 << 20
)

// NewServer creates a server. The caller closes it by Close or Drain.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Memory == nil {
		return nil, named("NewServer", "", errors.New("ServerOptions.Memory is nil; set it to a pool"))
	}
	for name, f := range o.Actions {
		if f == nil || name == ActionFree || name == ActionStats {
			return nil, named("NewServer", "", fmt.Errorf("ServerOptions.Actions[%q]: the function is nil or the name is a built-in action", name))
		}
	}
	st, err := stageFor(o.Memory.Place())
	if err != nil {
		return nil, named("NewServer", "", err)
	}
	o.MaxTensor = cmp.Or(o.MaxTensor, math.MaxInt64)
	o.MaxConnections = max(cmp.Or(o.MaxConnections, 1024), 1)
	o.Batch = cmp.Or(o.Batch, 1<<20)
	o.MemoryWait = cmp.Or(o.MemoryWait, 2*time.Second)
	o.Stall = cmp.Or(o.Stall, time.Minute)
	o.Keepalive = max(cmp.Or(o.Keepalive, 20*time.Second), time.Second)
	o.idle = cmp.Or(o.idle, 5*time.Minute)
	s := &Server{o: o, store: newStore(o.Memory, o.MaxTensors), gate: codec.NewGate(o.Limits), guard: newGuard(o.Tokens), stage: st}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec.New(o.Limits.MaxHeader)),
		grpc.StreamInterceptor(s.admit),
		grpc.MaxRecvMsgSize(1 << 20), // of requests; tensors have bounds of their own
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(connWindow),
		grpc.MaxConcurrentStreams(uint32(s.gate.Limits().MaxStreams)),
		experimental.BufferPool(new(codec.Frames)),
		grpc.WriteBufferSize(ioBuffer),
		grpc.MaxHeaderListSize(32 << 10), grpc.ConnectionTimeout(20 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: o.idle, Time: o.Keepalive, Timeout: o.Keepalive / 2}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true), // otherwise a call could store a tensor after Clear
	}
	if o.TLS != nil { // such connections keep their read buffer, so keep gRPC's size
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS)))
	} else {
		options = append(options, grpc.ReadBufferSize(ioBuffer))
	}
	s.grpc = grpc.NewServer(options...)
	s.grpc.RegisterService(streamed(gen.FlightService_ServiceDesc), s)
	s.grpc.RegisterService(&health, s)
	return s, nil
}

// Store returns the store of the server.
func (s *Server) Store() *Store { return s.store }

// Listen opens a location for Serve, and returns the location with the assigned port. With tokens and
// without TLS, only locations of this machine are allowed (ErrInsecure).
func (s *Server) Listen(l Location) (net.Listener, Location, error) {
	if s.o.TLS != nil && l.Scheme == "grpc+tcp" {
		l.Scheme = "grpc+tls"
	}
	if s.o.TLS == nil && l.Scheme == "grpc+tls" {
		return nil, l, named("Listen", "", fmt.Errorf("%v needs a certificate", l))
	}
	if len(s.guard) > 0 && !l.private() {
		return nil, l, named("Listen", "", kindErr(ErrInsecure, "%v does not encrypt tokens; use TLS, a loopback address or a Unix socket", l))
	}
	ln, err := l.Listen()
	if err != nil {
		return nil, l, named("Listen", "", err)
	}
	return admission.Limit(wideListener{ln}, s.o.MaxConnections), l.located(ln), nil
}

// Serve accepts connections until the server is drained or closed, and then returns nil. It closes the
// listener.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Drain accepts no new connections and calls, waits for running calls until ctx ends, and closes the
// server.
func (s *Server) Drain(ctx context.Context) (err error) {
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	s.grpc.GracefulStop()
	if !stop() {
		err = context.Cause(ctx)
	}
	s.Close()
	return err
}

// Close ends all calls, waits until they have returned, and releases all tensors. It may be called again,
// but not from an ActionFunc, because it waits for that.
func (s *Server) Close() {
	s.grpc.Stop()
	s.work.Wait()
	s.store.Clear()
}

// watched runs f. It returns an error if no byte moved for ServerOptions.Stall; the call then ends, which
// makes f return soon afterwards.
func (s *Server) watched(ctx context.Context, op string, moved func() int64, f func() error) error {
	ended := make(chan error, 1)
	s.work.Go(func() { ended <- f() })
	tick := time.NewTicker(max(s.o.Stall/4, time.Millisecond))
	defer tick.Stop()
	for last, since := int64(-1), time.Now(); ; {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			if n := moved(); n != last {
				last, since = n, time.Now()
			} else if time.Since(since) > s.o.Stall && ctx.Err() == nil {
				return status.Errorf(codes.DeadlineExceeded, "flight: %s: no byte moved for %v", op, s.o.Stall)
			}
		}
	}
}
