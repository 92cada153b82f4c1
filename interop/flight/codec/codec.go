package codec

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers what New falls back to
	"google.golang.org/grpc/mem"
)

// Outgoing is a message that knows its own bytes.
type Outgoing interface {
	// Buffers returns the message in order, each piece with a reference that gRPC
	// frees: small ones as mem.SliceBuffer, large ones from Leases.Memory. It is
	// called once for each time that the message is sent.
	Buffers() (mem.BufferSlice, error)
}

// Receivable is a message that takes its bytes as they come.
type Receivable interface {
	// Receive reads the message. What it leaves unread is dropped. The Incoming ends
	// with the call.
	Receive(*Incoming) error
}

// New returns the codec, "proto" by name: values that are [Outgoing] or [Receivable]
// pass by their own methods, all others as Protocol Buffers. maxHeader bounds the bytes
// that a Receivable may take by [Incoming.Bytes], 0 for DefaultMaxHeader.
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
	in := &Incoming{size: data.Len(), wire: data.Len(), header: c.maxHeader}
	data.Ref()
	in.take(data)
	defer in.free()
	return m.Receive(in)
}
