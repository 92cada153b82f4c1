package rpc

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
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
	model, version, id string
	results            []engine.Result
	stream             bool
	final              bool // mark it as the last response of its request
	leases             *codec.Leases
}

// small is the size of all fields but the raw contents, and total that of the message.
func (m *response) fields(b []byte) []byte {
	b = appendText(b, 1, m.model)
	b = appendText(b, 2, m.version)
	b = appendText(b, 3, m.id)
	if m.final {
		b = append(b, finalResponse...)
	}
	for i := range m.results {
		r := &m.results[i]
		shape := 0
		for _, n := range r.Shape {
			shape += protowire.SizeVarint(uint64(n))
		}
		datatype := r.Datatype.String()
		size := sizeText(r.Name) + sizeText(datatype)
		if len(r.Shape) > 0 {
			size += 1 + protowire.SizeBytes(shape)
		}
		b = protowire.AppendTag(b, 5, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
		b = appendText(b, 1, r.Name)
		b = appendText(b, 2, datatype)
		if len(r.Shape) > 0 {
			b = protowire.AppendTag(b, 3, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(shape))
			for _, n := range r.Shape {
				b = protowire.AppendVarint(b, uint64(n))
			}
		}
	}
	return b
}

// finalResponse is the parameter that marks the last response: {"triton_final_response": true}.
var finalResponse = func() []byte {
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "triton_final_response")
	value := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	entry = protowire.AppendBytes(protowire.AppendTag(entry, 2, protowire.BytesType), value)
	return protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), entry)
}()

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func sizeText(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

// data returns the bytes of an output in the message; none for an output in a region.
func data(r *engine.Result) []byte {
	if r.InRegion {
		return nil
	}
	return r.Bytes()
}

// Buffers implements codec.Outgoing.
func (m *response) Buffers() (mem.BufferSlice, error) {
	const room = 16 // for the fields around a message in a stream
	size := room + 256
	for i := range m.results {
		size += 64 + len(m.results[i].Name)
		if n := len(data(&m.results[i])); n <= inlined {
			size += n
		}
	}
	b := m.fields(make([]byte, room, size))
	rest := 0
	for i := range m.results {
		rest += 1 + protowire.SizeBytes(len(data(&m.results[i])))
	}
	start := room
	if m.stream { // its tag and length go before it
		n := len(b) - room + rest
		start = room - 1 - protowire.SizeVarint(uint64(n))
		protowire.AppendVarint(protowire.AppendTag(b[start:start:room], 2, protowire.BytesType), uint64(n))
	}
	var out mem.BufferSlice
	for i := range m.results {
		r := &m.results[i]
		d := data(r)
		b = protowire.AppendTag(b, 6, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(len(d)))
		if len(d) <= inlined {
			b = append(b, d...)
			continue
		}
		out = append(out, mem.SliceBuffer(b[start:len(b):len(b)]))
		for len(d) > 0 {
			n := min(len(d), leased)
			out = append(out, m.leases.Memory(r.Buffer(), d[:n]))
			d = d[n:]
		}
		start = len(b)
	}
	if start < len(b) || len(out) == 0 {
		out = append(out, mem.SliceBuffer(b[start:]))
	}
	return out, nil
}

// size returns the size of the outputs in bytes.
func (m *response) size() (n int) {
	for i := range m.results {
		n += len(data(&m.results[i]))
	}
	return n
}

// refusal is a ModelStreamInferResponse with an error.
type refusal struct{ id, message string }

// Buffers implements codec.Outgoing. The client finds its request by the id.
func (m refusal) Buffers() (mem.BufferSlice, error) {
	b := appendText(nil, 1, m.message)
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), appendText(nil, 3, m.id))
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}
