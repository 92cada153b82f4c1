package codec

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the fallback codec of New
	"google.golang.org/grpc/mem"
)

// Outgoing is a message that encodes itself.
type Outgoing interface {
	// Buffers returns the encoded message as consecutive buffers. Each holds a reference that gRPC
	// frees. Use mem.SliceBuffer for small fields and Leases.Memory for large ones. It is called
	// once each time the message is sent.
	Buffers() (mem.BufferSlice, error)
}

// Receivable is a message that decodes itself.
type Receivable interface {
	// Receive reads the message. Bytes that it does not read are discarded. The Incoming is invalid
	// after Receive returns.
	Receive(*Incoming) error
}

// New returns a codec named "proto". Values that implement [Outgoing] or [Receivable] use their own
// methods; all others are encoded with Protocol Buffers. maxHeader limits the total bytes that a
// Receivable may read with [Incoming.Bytes]; 0 means DefaultMaxHeader.
func New(maxHeader int) encoding.CodecV2 {
	return codec{fallback: encoding.GetCodecV2("proto"), maxHeader: orDefault(maxHeader, DefaultMaxHeader)}
}

type codec struct {
	fallback  encoding.CodecV2
	maxHeader int
}

func (c codec) Name() string { return c.fallback.Name() }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(Outgoing); ok {
		return m.Buffers()
	}
	return c.fallback.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(Receivable)
	if !ok {
		return c.fallback.Unmarshal(data, v)
	}
	in := &Incoming{size: data.Len(), header: c.maxHeader}
	in.chunks.Reset(data) // takes references of its own
	defer in.free()
	return m.Receive(in)
}
