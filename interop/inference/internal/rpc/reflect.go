package rpc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

// reflected registers gRPC reflection, by which tools like grpcurl list the services. It shows the
// protocol, which is public. Its streams count as calls.
func (s *Server) reflected() {
	reflection.Register(counted{s.grpc, s})
}

// counted registers services of streams that are counted as calls.
type counted struct {
	*grpc.Server
	s *Server
}

// RegisterService implements grpc.ServiceRegistrar.
func (c counted) RegisterService(d *grpc.ServiceDesc, impl any) {
	own := *d
	own.Streams = append([]grpc.StreamDesc(nil), d.Streams...)
	for i := range own.Streams {
		handler := own.Streams[i].Handler
		own.Streams[i].Handler = func(srv any, stream grpc.ServerStream) (err error) {
			defer c.s.survive(&err)
			_, leave, err := c.s.enter(stream.Context())
			if err != nil {
				return err
			}
			defer leave()
			return handler(srv, drainable{stream, c.s})
		}
	}
	c.Server.RegisterService(&own, impl)
}

// drainable is a stream that ends between two messages when the server drains.
type drainable struct {
	grpc.ServerStream
	s *Server
}

// RecvMsg implements grpc.ServerStream.
func (d drainable) RecvMsg(m any) error {
	came := make(chan error, 1)
	go func() { came <- d.ServerStream.RecvMsg(m) }() // ends with the stream at the latest
	select {
	case err := <-came:
		return err
	case <-d.s.drained.Done():
		return status.Error(codes.Unavailable, "the server is shutting down")
	}
}
