package rpc

import (
	"context"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

func (s *Server) serverLive(context.Context, *pb.ServerLiveRequest) (*pb.ServerLiveResponse, error) {
	return &pb.ServerLiveResponse{Live: s.o.Engine.Live() == nil}, nil
}

func (s *Server) serverReady(context.Context, *pb.ServerReadyRequest) (*pb.ServerReadyResponse, error) {
	return &pb.ServerReadyResponse{Ready: s.ready() == nil}, nil
}

// ready returns the readiness of the engine; not ready after Drain.
func (s *Server) ready() error {
	if s.drained.Err() != nil {
		return errDraining
	}
	return s.o.Engine.Ready()
}

func (s *Server) modelReady(_ context.Context, q *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	m, err := s.o.Engine.Model(q.GetName(), q.GetVersion()) // an unknown model is not ready
	return &pb.ModelReadyResponse{Ready: err == nil && s.drained.Err() == nil && m.Ready() == nil}, nil
}

func (s *Server) serverMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	m := s.o.Engine.Server()
	return &pb.ServerMetadataResponse{Name: m.Name, Version: m.Version, Extensions: m.Extensions}, nil
}

func (s *Server) modelMetadata(_ context.Context, q *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	m, err := s.o.Engine.Model(q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	meta := m.Meta()
	tensors := func(list []oip.Tensor) (out []*pb.ModelMetadataResponse_TensorMetadata) {
		for _, t := range list {
			out = append(out, &pb.ModelMetadataResponse_TensorMetadata{Name: t.Name, Datatype: t.Datatype.String(), Shape: t.Shape})
		}
		return out
	}
	return &pb.ModelMetadataResponse{Name: meta.Name, Versions: meta.Versions, Platform: meta.Platform,
		Inputs: tensors(meta.Inputs), Outputs: tensors(meta.Outputs)}, nil
}

// configTypes are the names of datatypes in a configuration.
var configTypes = map[oip.Datatype]pb.DataType{
	oip.BOOL: pb.DataType_TYPE_BOOL, oip.UINT8: pb.DataType_TYPE_UINT8, oip.UINT16: pb.DataType_TYPE_UINT16,
	oip.UINT32: pb.DataType_TYPE_UINT32, oip.UINT64: pb.DataType_TYPE_UINT64, oip.INT8: pb.DataType_TYPE_INT8,
	oip.INT16: pb.DataType_TYPE_INT16, oip.INT32: pb.DataType_TYPE_INT32, oip.INT64: pb.DataType_TYPE_INT64,
	oip.FP16: pb.DataType_TYPE_FP16, oip.FP32: pb.DataType_TYPE_FP32, oip.FP64: pb.DataType_TYPE_FP64,
	oip.BYTES: pb.DataType_TYPE_STRING, oip.BF16: pb.DataType_TYPE_BF16,
}

func (s *Server) modelConfig(_ context.Context, q *pb.ModelConfigRequest) (*pb.ModelConfigResponse, error) {
	m, err := s.o.Engine.Model(q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	meta := m.Meta()
	c := &pb.ModelConfig{Name: meta.Name, Platform: meta.Platform}
	c.Backend, _ = m.Config()["backend"].(string)
	for _, t := range meta.Inputs {
		c.Input = append(c.Input, &pb.ModelInput{Name: t.Name, DataType: configTypes[t.Datatype], Dims: t.Shape})
	}
	for _, t := range meta.Outputs {
		c.Output = append(c.Output, &pb.ModelOutput{Name: t.Name, DataType: configTypes[t.Datatype], Dims: t.Shape})
	}
	return &pb.ModelConfigResponse{Config: c}, nil
}

func (s *Server) modelStatistics(_ context.Context, q *pb.ModelStatisticsRequest) (*pb.ModelStatisticsResponse, error) {
	models := s.o.Engine.Models()
	if q.GetName() != "" {
		m, err := s.o.Engine.Model(q.GetName(), q.GetVersion())
		if err != nil {
			return nil, err
		}
		models = []*engine.Model{m}
	}
	a := &pb.ModelStatisticsResponse{}
	for _, m := range models {
		a.ModelStats = append(a.ModelStats, statistics(m.Stats()))
	}
	return a, nil
}

func statistics(t engine.ModelStats) *pb.ModelStatistics {
	duration := func(d engine.Duration) *pb.StatisticDuration { return &pb.StatisticDuration{Count: d.Count, Ns: d.NS} }
	out := &pb.ModelStatistics{Name: t.Name, Version: t.Version, InferenceCount: t.Inferences, ExecutionCount: t.Executions,
		InferenceStats: &pb.InferStatistics{Success: duration(t.Success), Fail: duration(t.Fail), Queue: duration(t.Queue),
			ComputeInput: duration(t.ComputeInput), ComputeInfer: duration(t.ComputeInfer), ComputeOutput: duration(t.ComputeOutput)}}
	if !t.Last.IsZero() {
		out.LastInference = uint64(t.Last.UnixMilli())
	}
	return out
}

func (s *Server) modelLoad(ctx context.Context, q *pb.RepositoryModelLoadRequest) (*pb.RepositoryModelLoadResponse, error) {
	if s.o.Control == nil {
		return nil, engine.ErrNoControl
	}
	return &pb.RepositoryModelLoadResponse{}, s.o.Control.Load(ctx, q.GetModelName())
}

func (s *Server) modelUnload(ctx context.Context, q *pb.RepositoryModelUnloadRequest) (*pb.RepositoryModelUnloadResponse, error) {
	if s.o.Control == nil {
		return nil, engine.ErrNoControl
	}
	return &pb.RepositoryModelUnloadResponse{}, s.o.Control.Unload(ctx, q.GetModelName())
}

func (s *Server) repositoryIndex(_ context.Context, q *pb.RepositoryIndexRequest) (*pb.RepositoryIndexResponse, error) {
	if q.GetRepositoryName() != "" {
		return nil, oip.Errorf(oip.NotFound, "there is one repository, without a name, and not %s", oip.Quote(q.GetRepositoryName()))
	}
	a := &pb.RepositoryIndexResponse{}
	for _, m := range s.o.Engine.Models() {
		meta, err := m.Meta(), m.Ready()
		if err != nil && q.GetReady() {
			continue
		}
		entry := &pb.RepositoryIndexResponse_ModelIndex{Name: meta.Name, Version: meta.Versions[0], State: "READY"}
		if err != nil {
			entry.State, entry.Reason = "UNAVAILABLE", oip.As(err).Message
		}
		a.Models = append(a.Models, entry)
	}
	return a, nil
}
