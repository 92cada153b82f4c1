package rpc

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
)

// errSlow, or oip.ErrDraining, is the reason why the server ends the context of a call.
var errSlow = oip.Errorf(oip.Deadline, "the peer sent its request, or read the response, too slowly")

// clock ends a call whose peer takes too long to send a request or to read a response. Waits inside gRPC's
// transport, for bytes or for room in a window, end with the context of the call.
type clock struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

type clockKey struct{}

// clockOf returns the clock of a call.
func clockOf(ctx context.Context) *clock {
	c, _ := ctx.Value(clockKey{}).(*clock)
	return c
}

// timed is called for each call before its handler, because gRPC waits for the message of a unary call
// before it calls the handler. The message must arrive within limits.patience. Streams of requests may be idle.
func (s *Server) timed(transport context.Context, info *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(transport)
	c := &clock{cancel, time.AfterFunc(s.limits.patience, func() { cancel(errSlow) })}
	if info.FullMethodName == streamMethod {
		c.timer.Stop()
	}
	context.AfterFunc(transport, func() { c.timer.Stop() })
	return context.WithValue(ctx, clockKey{}, c), nil
}

// perByte is the time that a peer has to read a byte of a response, in addition to limits.patience.
const perByte = time.Second >> 20

// linked are credentials without encryption that give calls access to their connection and its client.
type linked struct {
	credentials.TransportCredentials
}

// link is the AuthInfo of a call.
type link struct {
	net.Conn
	client peercred.Client
}

// AuthType implements credentials.AuthInfo.
func (link) AuthType() string { return "insecure" }

// ServerHandshake implements credentials.TransportCredentials.
func (linked) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, link{c, peercred.Of(c)}, nil
}

// linkOf returns the connection of a call; the zero link for a context that is not of a call.
func linkOf(ctx context.Context) (l link) {
	if p, ok := peer.FromContext(ctx); ok {
		l, _ = p.AuthInfo.(link)
	}
	return l
}
