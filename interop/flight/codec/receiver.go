package codec

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// transportStream is what grpc's own stream of a server can do besides
// grpc.ServerTransportStream.
type transportStream interface {
	// ReadMessageHeader fills the slice; io.EOF at the end of the stream.
	ReadMessageHeader([]byte) error
	// Read returns the next n bytes.
	Read(n int) (mem.BufferSlice, error)
	// RecvCompress names what compressed messages of the stream are compressed with.
	RecvCompress() string
}

// Receiver reads the messages of one stream of a server. Nothing else may receive from
// that stream.
type Receiver struct {
	gate   *Gate
	stream grpc.ServerStream
	raw    transportStream // nil: by the codec
	broken error
	got    atomic.Int64
}

// NewReceiver reads a stream under the limits of a gate. The server must use the codec
// of [New].
func NewReceiver(g *Gate, stream grpc.ServerStream) *Receiver {
	raw, _ := grpc.ServerTransportStreamFromContext(stream.Context()).(transportStream)
	return &Receiver{gate: g, stream: stream, raw: raw}
}

// Direct reports whether messages are read as they come, and not by the codec after
// grpc has read them whole.
func (r *Receiver) Direct() bool { return r.raw != nil }

// Received returns the bytes that were read so far; unlike the rest, from any goroutine:
// for those who watch whether a peer still sends.
func (r *Receiver) Received() int64 { return r.got.Load() }

// Next passes the next message to use. It returns io.EOF when the peer has sent all,
// the error of use, or why there is no message. A message that use has not read to its
// end is dropped with the rest of the stream: only the error remains, or nil where use
// had none, and then Next may be called again.
func (r *Receiver) Next(use func(*Incoming) error) error {
	if r.broken != nil {
		return r.broken
	}
	var err error
	if r.raw != nil {
		err = r.direct(use)
	} else {
		err = r.buffered(use)
	}
	if err != nil {
		r.broken = err
	}
	return err
}

func (r *Receiver) direct(use func(*Incoming) error) error {
	var prefix [5]byte
	if err := r.raw.ReadMessageHeader(prefix[:]); err != nil {
		return r.transport(err)
	}
	length := binary.BigEndian.Uint32(prefix[1:])
	if int64(length) > int64(r.gate.limits.MaxMessage) {
		return &LimitError{What: "bytes of a message", Asked: int64(length), Limit: int64(r.gate.limits.MaxMessage)}
	}
	size := int(length)
	if err := r.gate.charge(r.stream.Context(), size); err != nil {
		return r.transport(err)
	}
	defer r.gate.discharge(size)
	in := &Incoming{size: size, wire: size, header: r.gate.limits.MaxHeader, more: r.more}
	if prefix[0] != 0 {
		z, err := r.unpacked(size)
		if err != nil {
			return err
		}
		in.size, in.open, in.more = r.gate.limits.MaxMessage+1, true, z.more
		defer z.end()
	}
	defer in.free()
	if err := use(in); err != nil {
		return err
	}
	return in.drop()
}

func (r *Receiver) more(n int) (mem.BufferSlice, error) {
	chunks, err := r.raw.Read(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, r.transport(err)
	}
	r.got.Add(int64(n))
	return chunks, nil
}

// transport gives an error of grpc's transport the form that its users know.
func (r *Receiver) transport(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &WireError{Reason: "the stream ends within the message"}
	}
	var limit *LimitError
	if errors.As(err, &limit) {
		return err
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if cause := r.stream.Context().Err(); cause != nil {
		return status.FromContextError(cause).Err()
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// receivable runs a function as the Receive method of a message.
type receivable struct {
	gate *Gate
	ctx  context.Context
	use  func(*Incoming) error
	err  error // of use, which gRPC would wrap
}

func (m *receivable) Receive(in *Incoming) error {
	if m.err = m.gate.charge(m.ctx, in.size); m.err != nil {
		return m.err
	}
	defer m.gate.discharge(in.size)
	in.header = m.gate.limits.MaxHeader
	m.err = m.use(in)
	return m.err
}

func (r *Receiver) buffered(use func(*Incoming) error) error {
	m := &receivable{gate: r.gate, ctx: r.stream.Context(), use: use}
	if err := r.stream.RecvMsg(m); m.err == nil {
		return err
	}
	return m.err
}
