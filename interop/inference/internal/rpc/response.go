package rpc

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

const (
	// inlined is the size up to which an output is copied after the preceding fields: a separate
	// buffer costs gRPC more than the copy.
	inlined = 4 << 10
	// leased is the number of bytes of an output that gRPC holds in one buffer.
	leased = 1 << 20
)

// response is a ModelInferResponse, or a ModelStreamInferResponse with one, to be sent.
type response struct {
	fields  *pb.ModelInferResponse // without the raw contents
	results []engine.Result
	raw     int // bytes of the raw contents
	stream  bool
	leases  *codec.Leases
}

// newResponse returns the response to a request.
func newResponse(q *request, results []engine.Result, stream bool, leases *codec.Leases) *response {
	meta := q.r.Model().Meta()
	m := &response{&pb.ModelInferResponse{ModelName: meta.Name, ModelVersion: meta.Versions[0], Id: q.id}, results, 0, stream, leases}
	for i := range results {
		r := &results[i]
		m.raw += len(r.Bytes)
		m.fields.Outputs = append(m.fields.Outputs,
			&pb.ModelInferResponse_InferOutputTensor{Name: r.Name, Datatype: r.Datatype.String(), Shape: r.Shape})
	}
	if stream && q.emptyFinal {
		m.fields.Parameters = map[string]*pb.InferParameter{"triton_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}}
	}
	return m
}

// Buffers implements codec.Outgoing.
func (m *response) Buffers() (mem.BufferSlice, error) {
	fields := proto.Size(m.fields)
	total, small := fields, 16+fields // 16 for the tag and length of a message in a stream
	for i := range m.results {
		n := len(m.results[i].Bytes)
		total += 1 + protowire.SizeBytes(n)
		small += 16
		if n <= inlined {
			small += n
		}
	}
	b := make([]byte, 0, small)
	if m.stream {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(total))
	}
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m.fields)
	if err != nil {
		return nil, err
	}
	var out mem.BufferSlice
	for i := range m.results {
		r := &m.results[i]
		d := r.Bytes
		b = protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.BytesType), uint64(len(d)))
		if len(d) <= inlined {
			b = append(b, d...)
			continue
		}
		out = append(out, mem.SliceBuffer(b[:len(b):len(b)]))
		b = b[len(b):]
		for piece := range slices.Chunk(d, leased) {
			out = append(out, m.leases.Memory(r.Buffer, piece))
		}
	}
	if len(b) > 0 || out == nil {
		out = append(out, mem.SliceBuffer(b))
	}
	return out, nil
}
