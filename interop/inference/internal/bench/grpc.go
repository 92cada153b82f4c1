package main

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// wire hands messages through as they are.
type wire struct{}

func (wire) Name() string { return "proto" }

func (wire) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (wire) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// grpcClient has a connection of its own.
type grpcClient struct {
	s              *spec
	number         int
	conn           *grpc.ClientConn
	input, request []byte
}

func dialGRPC(s *spec, number int) (client, error) {
	conn, err := grpc.NewClient("passthrough:///"+s.address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(4<<20),
		grpc.WithReadBufferSize(256<<10), grpc.WithWriteBufferSize(256<<10))
	if err != nil {
		return nil, err
	}
	c := &grpcClient{s: s, number: number, conn: conn, input: s.data(number)}
	in, _ := s.names()
	shape := []int64{int64(s.height)}
	if s.width > 0 {
		shape = append(shape, int64(s.width))
	}
	c.request, err = proto.Marshal(&pb.ModelInferRequest{ModelName: s.model, RawInputContents: [][]byte{c.input},
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: in, Datatype: "FP32", Shape: shape}}})
	return c, err
}

func (c *grpcClient) once(verify bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var answer []byte
	if err := c.conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", &c.request, &answer); err != nil {
		return err
	}
	// The only tensor is at the end of the message.
	return c.s.check(answer[max(0, len(answer)-c.s.output()):], c.input, c.number, verify)
}

func (c *grpcClient) close() { c.conn.Close() }
