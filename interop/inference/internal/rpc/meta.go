package rpc

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

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
	return &pb.ServerReadyResponse{Ready: s.o.Engine.Ready() == nil}, nil
}

func (s *Server) modelReady(_ context.Context, q *pb.ModelReadyRequest) (*pb.ModelReadyResponse, error) {
	m, err := s.o.Engine.Model(q.GetName(), q.GetVersion()) // an unknown model is not ready
	return &pb.ModelReadyResponse{Ready: err == nil && m.Ready() == nil}, nil
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

func (s *Server) modelStatistics(_ context.Context, q *pb.ModelStatisticsRequest) (*pb.ModelStatisticsResponse, error) {
	models := s.o.Engine.Models()
	if q.GetName() != "" {
		m, err := s.o.Engine.Model(q.GetName(), q.GetVersion())
		if err != nil {
			return nil, err
		}
		models = []*engine.Model{m}
	}
	return fromJSON(engine.Statistics(models...), new(pb.ModelStatisticsResponse))
}

func (s *Server) modelLoad(ctx context.Context, q *pb.RepositoryModelLoadRequest) (*pb.RepositoryModelLoadResponse, error) {
	return &pb.RepositoryModelLoadResponse{}, s.o.Engine.Load(ctx, q.GetModelName(), slices.Collect(maps.Keys(q.GetParameters())))
}

func (s *Server) modelUnload(_ context.Context, q *pb.RepositoryModelUnloadRequest) (*pb.RepositoryModelUnloadResponse, error) {
	return &pb.RepositoryModelUnloadResponse{}, s.o.Engine.Unload(q.GetModelName())
}

func (s *Server) repositoryIndex(_ context.Context, q *pb.RepositoryIndexRequest) (*pb.RepositoryIndexResponse, error) {
	if q.GetRepositoryName() != "" {
		return nil, oip.Errorf(oip.NotFound, "there is one repository, without a name, and not %s", oip.Quote(q.GetRepositoryName()))
	}
	return fromJSON(map[string]any{"models": s.o.Engine.Index(q.GetReady())}, new(pb.RepositoryIndexResponse))
}
