package rpc

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// The methods that move tensors.
const (
	serviceName  = "inference.GRPCInferenceService"
	inferMethod  = "/" + serviceName + "/ModelInfer"
	streamMethod = "/" + serviceName + "/ModelStreamInfer"
)

// description describes the service to gRPC. ModelInfer is registered as a stream, which clients cannot
// distinguish from a unary call, so that its message can be decoded while it arrives. ClientStreams makes
// gRPC call the interceptor. Methods that are not supported are left to gRPC.
var description = grpc.ServiceDesc{
	ServiceName: serviceName,
	HandlerType: (*any)(nil),
	Metadata:    pb.File_inference_proto.Path(),
	Methods: []grpc.MethodDesc{
		method("ServerLive", (*Server).serverLive),
		method("ServerReady", (*Server).serverReady),
		method("ModelReady", (*Server).modelReady),
		method("ServerMetadata", (*Server).serverMetadata),
		method("ModelMetadata", (*Server).modelMetadata),
		method("ModelStatistics", (*Server).modelStatistics),
		method("RepositoryIndex", (*Server).repositoryIndex),
		method("RepositoryModelLoad", (*Server).modelLoad),
		method("RepositoryModelUnload", (*Server).modelUnload),
		method("SystemSharedMemoryStatus", (*Server).regionStatus),
		method("SystemSharedMemoryRegister", (*Server).regionRegister),
		method("SystemSharedMemoryUnregister", (*Server).regionUnregister),
		method("CudaSharedMemoryStatus", (*Server).cudaStatus),
		method("CudaSharedMemoryUnregister", (*Server).cudaUnregister),
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "ModelInfer", Handler: exchanged((*exchange).infer), ClientStreams: true},
		{StreamName: "ModelStreamInfer", Handler: exchanged((*exchange).streamInfer), ServerStreams: true, ClientStreams: true},
	},
}

// method adapts a function from message to message.
func method[Q, A any](name string, f func(*Server, context.Context, *Q) (*A, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (_ any, err error) {
		s, _ := srv.(*Server)
		defer s.survive(&err)
		q := new(Q)
		if err := decode(q); err != nil {
			return nil, s.end(ctx, err, false)
		}
		a, err := f(s, ctx, q)
		if err != nil {
			return nil, s.status(ctx, err)
		}
		return a, nil
	}}
}

// exchanged adapts a function of an exchange, which admit has made.
func exchanged(f func(*exchange) error) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		e, _ := stream.(*exchange)
		return f(e)
	}
}

// survive turns a panic into the end of its call alone, like net/http.
func (s *Server) survive(err *error) {
	if p := recover(); p != nil {
		s.o.Engine.Refused(oip.Internal)
		s.o.Engine.Log().Error("a call panicked", "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the server failed")
	}
}
