package rpc

import (
	"context"
	"encoding/json"
	"maps"
	"runtime/debug"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
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
		method("ServerLive", func(_ context.Context, e *engine.Engine, _ *pb.ServerLiveRequest, a *pb.ServerLiveResponse) error {
			a.Live = e.Live() == nil
			return nil
		}),
		method("ServerReady", func(_ context.Context, e *engine.Engine, _ *pb.ServerReadyRequest, a *pb.ServerReadyResponse) error {
			a.Ready = e.Ready() == nil
			return nil
		}),
		method("ModelReady", func(_ context.Context, e *engine.Engine, q *pb.ModelReadyRequest, a *pb.ModelReadyResponse) error {
			m, err := e.Model(q.GetName(), q.GetVersion()) // an unknown model is not ready
			a.Ready = err == nil && m.Ready() == nil
			return nil
		}),
		method("ServerMetadata", func(_ context.Context, e *engine.Engine, _ *pb.ServerMetadataRequest, a *pb.ServerMetadataResponse) error {
			return fromJSON(a, e.Server())
		}),
		method("ModelMetadata", func(_ context.Context, e *engine.Engine, q *pb.ModelMetadataRequest, a *pb.ModelMetadataResponse) error {
			m, err := e.Model(q.GetName(), q.GetVersion())
			if err != nil {
				return err
			}
			return fromJSON(a, m.Meta())
		}),
		method("ModelStatistics", func(_ context.Context, e *engine.Engine, q *pb.ModelStatisticsRequest, a *pb.ModelStatisticsResponse) error {
			if q.GetName() == "" {
				return fromJSON(a, engine.Statistics(e.Models()...))
			}
			m, err := e.Model(q.GetName(), q.GetVersion())
			if err != nil {
				return err
			}
			return fromJSON(a, engine.Statistics(m))
		}),
		method("RepositoryIndex", func(_ context.Context, e *engine.Engine, q *pb.RepositoryIndexRequest, a *pb.RepositoryIndexResponse) error {
			if q.GetRepositoryName() != "" {
				return oip.Errorf(oip.NotFound, "there is one repository, without a name, and not %s", oip.Quote(q.GetRepositoryName()))
			}
			return fromJSON(a, map[string]any{"models": e.Index(q.GetReady())})
		}),
		method("RepositoryModelLoad", func(ctx context.Context, e *engine.Engine, q *pb.RepositoryModelLoadRequest, _ *pb.RepositoryModelLoadResponse) error {
			return e.Load(ctx, q.GetModelName(), slices.Collect(maps.Keys(q.GetParameters())))
		}),
		method("RepositoryModelUnload", func(ctx context.Context, e *engine.Engine, q *pb.RepositoryModelUnloadRequest, _ *pb.RepositoryModelUnloadResponse) error {
			return e.Unload(ctx, q.GetModelName())
		}),
		method("SystemSharedMemoryStatus", func(ctx context.Context, e *engine.Engine, q *pb.SystemSharedMemoryStatusRequest, a *pb.SystemSharedMemoryStatusResponse) error {
			list, err := e.Options.Regions.Status(linkOf(ctx).client, q.GetName())
			a.Regions = map[string]*pb.SystemSharedMemoryStatusResponse_RegionStatus{}
			for _, i := range list {
				a.Regions[i.Name] = &pb.SystemSharedMemoryStatusResponse_RegionStatus{Name: i.Name, Key: i.Key, Offset: i.Offset, ByteSize: i.Size}
			}
			return err
		}),
		method("SystemSharedMemoryRegister", func(ctx context.Context, e *engine.Engine, q *pb.SystemSharedMemoryRegisterRequest, _ *pb.SystemSharedMemoryRegisterResponse) error {
			return e.Options.Regions.Register(linkOf(ctx).client, q.GetName(), q.GetKey(), q.GetOffset(), q.GetByteSize())
		}),
		method("SystemSharedMemoryUnregister", func(ctx context.Context, e *engine.Engine, q *pb.SystemSharedMemoryUnregisterRequest, _ *pb.SystemSharedMemoryUnregisterResponse) error {
			return e.Options.Regions.Unregister(linkOf(ctx).client, q.GetName())
		}),
		// There are no regions of CUDA, but clients begin by unregistering all of them.
		method("CudaSharedMemoryStatus", func(context.Context, *engine.Engine, *pb.CudaSharedMemoryStatusRequest, *pb.CudaSharedMemoryStatusResponse) error {
			return nil
		}),
		method("CudaSharedMemoryUnregister", func(context.Context, *engine.Engine, *pb.CudaSharedMemoryUnregisterRequest, *pb.CudaSharedMemoryUnregisterResponse) error {
			return nil
		}),
	},
	Streams: []grpc.StreamDesc{
		{StreamName: "ModelInfer", Handler: exchanged((*exchange).infer), ClientStreams: true},
		{StreamName: "ModelStreamInfer", Handler: exchanged((*exchange).streamInfer), ServerStreams: true, ClientStreams: true},
	},
}

// method adapts a function that sets the answer to a message.
func method[Q, A any](name string, f func(context.Context, *engine.Engine, *Q, *A) error) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (_ any, err error) {
		s, _ := srv.(*Server)
		defer s.survive(&err)
		q, a := new(Q), new(A)
		if err := decode(q); err != nil {
			return nil, s.end(ctx, err, false)
		}
		if err := f(ctx, s.engine, q, a); err != nil {
			return nil, s.end(ctx, err, true)
		}
		return a, nil
	}}
}

// fromJSON fills a message with the JSON form of a value, which has the names of the protocol.
func fromJSON(m proto.Message, value any) error {
	b, err := json.Marshal(value)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
	}
	return err
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
		s.engine.Refused(oip.Internal)
		s.engine.Options.Log.Error("a call panicked", "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "the server failed")
	}
}
