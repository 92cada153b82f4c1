package rpc

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// echo returns a server of grpc-go alone that echoes the same messages through its own codec.
func echo(b *testing.B) *testbed {
	b.Helper()
	s := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 30))
	s.RegisterService(&grpc.ServiceDesc{ServiceName: serviceName, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "ModelInfer",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			q := new(pb.ModelInferRequest)
			if err := decode(q); err != nil {
				return nil, err
			}
			return &pb.ModelInferResponse{ModelName: q.GetModelName(), Id: q.GetId(), RawOutputContents: q.GetRawInputContents(),
				Outputs: []*pb.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "FP32", Shape: q.GetInputs()[0].GetShape()}}}, nil
		}}}}, struct{}{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	go func() { _ = s.Serve(l) }()
	t := &testbed{at: l.Addr().String()}
	t.conn = t.dial(b)
	b.Cleanup(func() { t.conn.Close(); s.Stop() })
	return t
}

// BenchmarkInfer measures a complete call with the client of grpc-go in the same process, compared
// with an echo server of grpc-go that has no limits and copies nothing.
func BenchmarkInfer(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20, 16 << 20} {
		for _, kind := range []string{"engine", "echo"} {
			b.Run(fmt.Sprintf("%s/%dKiB", kind, size>>10), func(b *testing.B) {
				t := (*testbed)(nil)
				if kind == "engine" {
					t = newTestbed(b, engine.Options{}, nil, enginetest.Identity())
				} else {
					t = echo(b)
				}
				q := identity("identity", size/4)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := t.infer(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
