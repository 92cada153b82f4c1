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

// description describes the service to gRPC. ModelInfer is registered as a stream, which clients
// cannot distinguish from a unary call, so that its message can be decoded while it arrives.
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
		method("ModelConfig", (*Server).modelConfig),
		method("ModelStatistics", (*Server).modelStatistics),
		method("RepositoryIndex", (*Server).repositoryIndex),
		method("RepositoryModelLoad", (*Server).modelLoad),
		method("RepositoryModelUnload", (*Server).modelUnload),
		method("SystemSharedMemoryStatus", (*Server).regionStatus),
		method("SystemSharedMemoryRegister", (*Server).regionRegister),
		method("SystemSharedMemoryUnregister", (*Server).regionUnregister),
		method("CudaSharedMemoryStatus", (*Server).cudaStatus),
		method("CudaSharedMemoryRegister", refused[pb.CudaSharedMemoryRegisterRequest, pb.CudaSharedMemoryRegisterResponse]("CUDA shared memory is not supported; use system shared memory")),
		method("CudaSharedMemoryUnregister", (*Server).cudaUnregister),
		method("TraceSetting", refused[pb.TraceSettingRequest, pb.TraceSettingResponse]("trace settings are not supported")),
		method("LogSettings", refused[pb.LogSettingsRequest, pb.LogSettingsResponse]("log settings are not supported")),
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "ModelInfer", Handler: streamed((*Server).infer)},
		{StreamName: "ModelStreamInfer", Handler: streamed((*Server).streamInfer), ServerStreams: true, ClientStreams: true},
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

func streamed(f func(*Server, grpc.ServerStream) error) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) (err error) {
		s, _ := srv.(*Server)
		defer s.survive(&err)
		return f(s, stream)
	}
}

// survive turns a panic into the end of its call alone, like net/http.
func (s *Server) survive(err *error) {
	if p := recover(); p != nil {
		s.o.Engine.Refused(oip.Internal)
		s.o.Log.Error("a call panicked", "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the server failed")
	}
}
