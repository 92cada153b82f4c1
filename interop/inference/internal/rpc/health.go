package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// health is grpc.health.v1. "" and the inference service have the readiness of the server; the name
// of a model has that of the model.
type health struct {
	healthpb.UnimplementedHealthServer // of List
	s                                  *Server
}

// look is the interval at which a watched service is checked.
const look = 250 * time.Millisecond

func (h health) status(service string) healthpb.HealthCheckResponse_ServingStatus {
	err := h.s.engine.Ready()
	if service != "" && service != serviceName {
		m, unknown := h.s.engine.Model(service, "")
		if unknown != nil {
			return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
		}
		err = m.Ready()
	}
	if err != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

// Check implements healthpb.HealthServer.
func (h health) Check(_ context.Context, q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	now := h.status(q.GetService())
	if now == healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthpb.HealthCheckResponse{Status: now}, nil
}

// Watch implements healthpb.HealthServer. It sends each change.
func (h health) Watch(q *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	clockOf(stream.Context()).timer.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	last := healthpb.HealthCheckResponse_ServingStatus(-1)
	for {
		if now := h.status(q.GetService()); now != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
