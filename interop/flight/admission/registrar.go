package admission

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Registrar returns a registrar for services whose calls begin with enter, on the server that to
// registers services with.
//
// enter runs before anything of the request is read. It returns an error to refuse the call, or a
// function that runs when the call has ended. gRPC itself reads the message of a unary call to its last
// byte before it calls an interceptor, so that a client could hold a call without ever passing
// authentication. Therefore unary calls are registered as streams, which makes no difference to clients.
//
// A call whose client sends one request ends with DeadlineExceeded if the request does not arrive
// within the given time.
func Registrar(to grpc.ServiceRegistrar, within time.Duration, enter func(context.Context) (leave func(), err error)) grpc.ServiceRegistrar {
	return registrar{to, within, enter}
}

type registrar struct {
	to     grpc.ServiceRegistrar
	within time.Duration
	enter  func(context.Context) (func(), error)
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	own := *d
	own.Methods, own.Streams = nil, slices.Clone(d.Streams)
	for _, m := range d.Methods {
		own.Streams = append(own.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: func(srv any, stream grpc.ServerStream) error {
			response, err := m.Handler(srv, stream.Context(), stream.RecvMsg, nil)
			if err != nil {
				return err
			}
			return stream.SendMsg(response)
		}})
	}
	for i, m := range own.Streams {
		own.Streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
			leave, err := r.enter(stream.Context())
			if err != nil {
				return err
			}
			defer leave()
			if !m.ClientStreams {
				stream = timedStream{stream, r.within}
			}
			return m.Handler(srv, stream)
		}
	}
	r.to.RegisterService(&own, impl)
}

// timedStream is the stream of a call whose client sends one request, which must arrive in time.
type timedStream struct {
	grpc.ServerStream
	within time.Duration
}

// RecvMsg implements grpc.ServerStream.
func (s timedStream) RecvMsg(m any) error {
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }() // returns when the call ends at the latest
	timer := time.NewTimer(s.within)
	defer timer.Stop()
	select {
	case err := <-received:
		return err
	case <-timer.C:
		return status.Errorf(codes.DeadlineExceeded, "the request did not arrive within %v", s.within)
	}
}
