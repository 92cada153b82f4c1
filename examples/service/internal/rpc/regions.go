package rpc

import (
	"context"

	"github.com/usmbridge/usmbridge/examples/service/internal/oip"
	"github.com/usmbridge/usmbridge/examples/service/internal/region"
	"github.com/usmbridge/usmbridge/examples/service/internal/rpc/pb"
)

// regions are the clients' memory. Errors: Unsupported where it is not served.
func (s *Server) regions() (*region.Registry, error) {
	if r := s.o.Engine.Regions(); r != nil {
		return r, nil
	}
	return nil, oip.Errorf(oip.Unsupported, "shared memory is not served here")
}

func (s *Server) regionStatus(_ context.Context, q *pb.SystemSharedMemoryStatusRequest) (*pb.SystemSharedMemoryStatusResponse, error) {
	r, err := s.regions()
	if err != nil {
		return nil, err
	}
	list, err := r.Status(q.GetName())
	if err != nil {
		return nil, err
	}
	a := &pb.SystemSharedMemoryStatusResponse{Regions: map[string]*pb.SystemSharedMemoryStatusResponse_RegionStatus{}}
	for _, i := range list {
		a.Regions[i.Name] = &pb.SystemSharedMemoryStatusResponse_RegionStatus{Name: i.Name, Key: i.Key, Offset: i.Offset, ByteSize: i.Size}
	}
	return a, nil
}

func (s *Server) regionRegister(_ context.Context, q *pb.SystemSharedMemoryRegisterRequest) (*pb.SystemSharedMemoryRegisterResponse, error) {
	r, err := s.regions()
	if err == nil {
		err = r.Register(q.GetName(), q.GetKey(), q.GetOffset(), q.GetByteSize())
	}
	return &pb.SystemSharedMemoryRegisterResponse{}, err
}

func (s *Server) regionUnregister(_ context.Context, q *pb.SystemSharedMemoryUnregisterRequest) (*pb.SystemSharedMemoryUnregisterResponse, error) {
	r, err := s.regions()
	switch {
	case err != nil:
	case q.GetName() == "":
		err = r.UnregisterAll()
	default:
		err = r.Unregister(q.GetName())
	}
	return &pb.SystemSharedMemoryUnregisterResponse{}, err
}

func (s *Server) cudaStatus(_ context.Context, q *pb.CudaSharedMemoryStatusRequest) (*pb.CudaSharedMemoryStatusResponse, error) {
	return &pb.CudaSharedMemoryStatusResponse{}, noCuda(q.GetName())
}

// cudaUnregister of all regions succeeds, as there are none: clients begin with it.
func (s *Server) cudaUnregister(_ context.Context, q *pb.CudaSharedMemoryUnregisterRequest) (*pb.CudaSharedMemoryUnregisterResponse, error) {
	return &pb.CudaSharedMemoryUnregisterResponse{}, noCuda(q.GetName())
}

func noCuda(name string) error {
	if name == "" {
		return nil
	}
	return oip.Errorf(oip.NotFound, "no CUDA region %s is registered: there is no CUDA here", oip.Quote(name))
}
