package rpc

import (
	"context"

	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// client returns the client of a call.
func client(ctx context.Context) peercred.Client {
	return linkOf(ctx).client
}

func (s *Server) regionStatus(ctx context.Context, q *pb.SystemSharedMemoryStatusRequest) (*pb.SystemSharedMemoryStatusResponse, error) {
	list, err := s.o.Engine.Regions().Status(client(ctx), q.GetName())
	if err != nil {
		return nil, err
	}
	a := &pb.SystemSharedMemoryStatusResponse{Regions: map[string]*pb.SystemSharedMemoryStatusResponse_RegionStatus{}}
	for _, i := range list {
		a.Regions[i.Name] = &pb.SystemSharedMemoryStatusResponse_RegionStatus{Name: i.Name, Key: i.Key, Offset: i.Offset, ByteSize: i.Size}
	}
	return a, nil
}

func (s *Server) regionRegister(ctx context.Context, q *pb.SystemSharedMemoryRegisterRequest) (*pb.SystemSharedMemoryRegisterResponse, error) {
	return &pb.SystemSharedMemoryRegisterResponse{},
		s.o.Engine.Regions().Register(client(ctx), q.GetName(), q.GetKey(), q.GetOffset(), q.GetByteSize())
}

func (s *Server) regionUnregister(ctx context.Context, q *pb.SystemSharedMemoryUnregisterRequest) (*pb.SystemSharedMemoryUnregisterResponse, error) {
	return &pb.SystemSharedMemoryUnregisterResponse{}, s.o.Engine.Regions().Unregister(client(ctx), q.GetName())
}

// There are no regions of CUDA, but clients begin by unregistering all of them.

func (s *Server) cudaStatus(context.Context, *pb.CudaSharedMemoryStatusRequest) (*pb.CudaSharedMemoryStatusResponse, error) {
	return &pb.CudaSharedMemoryStatusResponse{}, nil
}

func (s *Server) cudaUnregister(context.Context, *pb.CudaSharedMemoryUnregisterRequest) (*pb.CudaSharedMemoryUnregisterResponse, error) {
	return &pb.CudaSharedMemoryUnregisterResponse{}, nil
}
