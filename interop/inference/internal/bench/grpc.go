package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of the protocol's ModelInferRequest and ModelInferResponse.
const (
	requestModel   = 1
	requestInputs  = 5
	requestRaw     = 7
	tensorName     = 1
	tensorDatatype = 2
	tensorShape    = 3
	responseRaw    = 6
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

var _ encoding.CodecV2 = wire{}

// grpcClient has a connection of its own.
type grpcClient struct {
	s       *spec
	number  int
	conn    *grpc.ClientConn
	input   []byte
	request []byte
}

func dialGRPC(s *spec, number int) (client, error) {
	conn, err := grpc.NewClient("passthrough:///"+s.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return s.connect() }),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(4<<20),
		grpc.WithReadBufferSize(256<<10), grpc.WithWriteBufferSize(256<<10))
	if err != nil {
		return nil, err
	}
	c := &grpcClient{s: s, number: number, conn: conn, input: make([]byte, s.input())}
	s.fill(c.input, number)
	name := "x"
	if s.Model == "sobel" {
		name = "luminance"
	}
	var tensor, shape []byte
	tensor = protowire.AppendString(protowire.AppendTag(tensor, tensorName, protowire.BytesType), name)
	tensor = protowire.AppendString(protowire.AppendTag(tensor, tensorDatatype, protowire.BytesType), "FP32")
	shape = protowire.AppendVarint(shape, uint64(s.Height))
	if s.Width > 0 {
		shape = protowire.AppendVarint(shape, uint64(s.Width))
	}
	tensor = protowire.AppendBytes(protowire.AppendTag(tensor, tensorShape, protowire.BytesType), shape)
	c.request = protowire.AppendString(protowire.AppendTag(nil, requestModel, protowire.BytesType), s.Model)
	c.request = protowire.AppendBytes(protowire.AppendTag(c.request, requestInputs, protowire.BytesType), tensor)
	c.request = protowire.AppendBytes(protowire.AppendTag(c.request, requestRaw, protowire.BytesType), c.input)
	return c, nil
}

const inferMethod = "/inference.GRPCInferenceService/ModelInfer"

func (c *grpcClient) once(verify bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var answer []byte
	if err := c.conn.Invoke(ctx, inferMethod, &c.request, &answer); err != nil {
		switch status.Code(err) {
		case codes.ResourceExhausted, codes.DeadlineExceeded:
			return fmt.Errorf("%w: %w", errRefused, err)
		case codes.Unavailable, codes.Canceled:
			return err
		}
		return &refusedError{err.Error()}
	}
	tensor, err := rawOf(answer)
	if err != nil {
		return err
	}
	if len(tensor) != c.s.output() || verify && !c.s.right(tensor, c.input, c.number) {
		return errWrong
	}
	return nil
}

// rawOf finds the only tensor of an answer.
func rawOf(p []byte) ([]byte, error) {
	for len(p) > 0 {
		number, kind, n := protowire.ConsumeTag(p)
		if n < 0 {
			return nil, errWrong
		}
		p = p[n:]
		if number == responseRaw {
			raw, n := protowire.ConsumeBytes(p)
			if n < 0 {
				return nil, errWrong
			}
			return raw, nil
		}
		if n = protowire.ConsumeFieldValue(number, kind, p); n < 0 {
			return nil, errWrong
		}
		p = p[n:]
	}
	return nil, errWrong
}

// cut begins a call and gives it up after a moment.
func (c *grpcClient) cut() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	var answer []byte
	_ = c.conn.Invoke(ctx, inferMethod, &c.request, &answer)
	return nil
}

func (c *grpcClient) close() { c.conn.Close() }
