package flight

import (
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// health is the service grpc.health.v1 with the call Check. It does not read the request, so that a client
// without a token cannot make the server hold one; all services have the same state.
var health = grpc.ServiceDesc{
	ServiceName: healthpb.Health_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Check", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING})
	}}},
}

// streamed returns the description of a service with its unary calls as streams, which clients cannot
// distinguish. gRPC reads the message of a unary call before it calls an interceptor. (InTapHandle is called
// before the message too. But of a call that it refuses, gRPC 1.85 never stops the timer of the deadline,
// which the client chooses: a client without a token could fill the memory with timers.)
func streamed(d grpc.ServiceDesc) *grpc.ServiceDesc {
	d.Streams = slices.Clone(d.Streams)
	for _, m := range d.Methods {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: m.MethodName, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			response, err := m.Handler(srv, stream.Context(), stream.RecvMsg, nil)
			if err != nil {
				return err
			}
			return stream.SendMsg(response)
		}})
	}
	d.Methods = nil
	return &d
}

// admit is the interceptor of all calls. It checks the token and the number of calls before anything of the
// request is read. Health checks need no token, and a server with its largest number of calls answers them.
func (s *Server) admit(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if info.FullMethod == healthpb.Health_Check_FullMethodName {
		return handle(srv, stream)
	}
	if err := s.guard.check(stream.Context()); err != nil {
		return err
	}
	leave, err := s.gate.Enter()
	if err != nil {
		return err
	}
	defer leave()
	if !info.IsClientStream {
		stream = timedStream{stream, s.o.Stall}
	}
	return handle(srv, stream)
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
