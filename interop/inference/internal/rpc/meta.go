package rpc

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

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

// fromJSON fills a message with the JSON form of a value, which has the names of the protocol.
func fromJSON[M proto.Message](value any, m M) (M, error) {
	b, err := json.Marshal(value)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
	}
	return m, err
}

func (s *Server) serverMetadata(context.Context, *pb.ServerMetadataRequest) (*pb.ServerMetadataResponse, error) {
	return fromJSON(s.o.Engine.Server(), new(pb.ServerMetadataResponse))
}

func (s *Server) modelMetadata(_ context.Context, q *pb.ModelMetadataRequest) (*pb.ModelMetadataResponse, error) {
	m, err := s.o.Engine.Model(q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	return fromJSON(m.Meta(), new(pb.ModelMetadataResponse))
}

func (s *Server) modelConfig(_ context.Context, q *pb.ModelConfigRequest) (*pb.ModelConfigResponse, error) {
	m, err := s.o.Engine.Model(q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	return fromJSON(map[string]any{"config": m.Config()}, new(pb.ModelConfigResponse))
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
