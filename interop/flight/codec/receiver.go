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

// transportStream lists the methods of gRPC's server stream that grpc.ServerTransportStream does
// not declare.
type transportStream interface {
	// ReadMessageHeader fills the slice; io.EOF at the end of the stream.
	ReadMessageHeader([]byte) error
	// Read returns the next n bytes.
	Read(n int) (mem.BufferSlice, error)
	// RecvCompress returns the name of the compressor of the stream's messages.
	RecvCompress() string
}

// Receiver reads the messages of one stream on a server. While it is in use, no other code may
// receive from that stream.
type Receiver struct {
	gate   *Gate
	stream grpc.ServerStream
	raw    transportStream // nil: gRPC reads each message whole, and the codec passes it on
	err    error
	got    atomic.Int64
}

// NewReceiver returns a receiver for stream under the limits of g. The server must use the codec of
// [New].
func NewReceiver(g *Gate, stream grpc.ServerStream) *Receiver {
	raw, _ := grpc.ServerTransportStreamFromContext(stream.Context()).(transportStream)
	return &Receiver{gate: g, stream: stream, raw: raw}
}

// Received returns the number of bytes read so far. Unlike the other methods it is safe for
// concurrent use, so that a watchdog can detect a stalled peer.
func (r *Receiver) Received() int64 { return r.got.Load() }

// Next calls use with the next message. It returns io.EOF after the last message, the error of use,
// or the error that prevented receiving. If use returns nil, Next discards the unread rest of the
// message and may be called again. After an error, all later calls return the same error.
func (r *Receiver) Next(use func(*Incoming) error) error {
	if r.err != nil {
		return r.err
	}
	var err error
	if r.raw != nil {
		err = r.direct(use)
	} else {
		err = r.buffered(use)
	}
	if err != nil {
		r.err = err
	}
	return err
}

// direct reads the next message from gRPC's transport stream.
func (r *Receiver) direct(use func(*Incoming) error) error {
	var prefix [5]byte
	if err := r.raw.ReadMessageHeader(prefix[:]); err != nil {
		return r.transport(err)
	}
	size := int64(binary.BigEndian.Uint32(prefix[1:]))
	if err := r.gate.charge(r.stream.Context(), size); err != nil {
		return r.transport(err)
	}
	defer r.gate.discharge(size)
	in := &Incoming{size: int(size), header: r.gate.limits.MaxHeader, fetch: r.fetch}
	defer in.free()
	if prefix[0] != 0 {
		z, err := r.unpack(in)
		if err != nil {
			return err
		}
		defer z.end()
		in = &Incoming{size: r.gate.limits.MaxMessage + 1, open: true, header: in.header, fetch: z.fetch}
		defer in.free()
	}
	if err := use(in); err != nil {
		return err
	}
	return in.drop()
}

// fetch reads n bytes of the current message.
func (r *Receiver) fetch(n int) (mem.BufferSlice, error) {
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

// transport converts an error of gRPC's transport into io.EOF, a WireError, a LimitError or a gRPC
// status.
func (r *Receiver) transport(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &WireError{Reason: "the stream ends within a message"}
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

// receivable adapts a function to Receivable.
type receivable struct {
	gate *Gate
	ctx  context.Context
	use  func(*Incoming) error
	err  error // error of use; gRPC would return it wrapped
}

func (m *receivable) Receive(in *Incoming) error {
	if m.err = m.gate.charge(m.ctx, int64(in.size)); m.err != nil {
		return m.err
	}
	defer m.gate.discharge(int64(in.size))
	in.header = m.gate.limits.MaxHeader
	m.err = m.use(in)
	return m.err
}

// buffered receives the next message through the codec.
func (r *Receiver) buffered(use func(*Incoming) error) error {
	m := &receivable{gate: r.gate, ctx: r.stream.Context(), use: use}
	if err := r.stream.RecvMsg(m); m.err == nil {
		return err
	}
	return m.err
}
