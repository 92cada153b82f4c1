package codec

import (
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// piece is the number of bytes to request from the transport at a time: large enough that the cost
// of a request is negligible, small enough that copied bytes are still in the processor's cache.
const piece = 64 << 10

// Incoming is a message that is being received. After reading fails, all methods return the same
// error.
type Incoming struct {
	size   int                                  // length of the message; while open, the largest allowed length plus one
	open   bool                                 // the message is compressed and its length is not known yet
	read   int                                  // bytes that the caller has read
	fetch  func(n int) (mem.BufferSlice, error) // returns up to n further bytes of the message; nil if chunks has the whole message
	chunks mem.Reader                           // the unread rest of the last result of fetch
	header int                                  // bytes that Bytes may still return
	err    error
}

// Size returns the length of the message in bytes. The length of a compressed message is unknown
// until its end; until then Size is an upper bound.
func (in *Incoming) Size() int { return in.size }

// Left returns the number of unread bytes. For a compressed message it is an upper bound; see Size.
func (in *Incoming) Left() int { return in.size - in.read }

// free releases the chunks. Later calls fail with io.ErrClosedPipe.
func (in *Incoming) free() {
	_ = in.chunks.Close() // never fails
	_ = in.fail(io.ErrClosedPipe)
}

// fail records the first error and returns it.
func (in *Incoming) fail(err error) error {
	if in.err == nil {
		in.err = err
	}
	return in.err
}

func (in *Incoming) malformed(format string, args ...any) error {
	return in.fail(&WireError{Offset: int64(in.read), Reason: fmt.Sprintf(format, args...)})
}

// fill makes chunks non-empty. The message must have unread bytes.
func (in *Incoming) fill() error {
	for in.chunks.Remaining() == 0 {
		n := min(in.Left(), piece)
		if n <= 0 || in.fetch == nil {
			return in.fail(io.ErrUnexpectedEOF)
		}
		chunks, err := in.fetch(n)
		if in.open && errors.Is(err, io.EOF) {
			in.size, in.open = in.read, false
			return in.malformed("the message ends within a field")
		}
		if err != nil {
			return in.fail(err)
		}
		in.chunks.Reset(chunks) // takes references of its own
		chunks.Free()
	}
	return nil
}

// tooLong returns the error for an open message of at least n bytes.
func (in *Incoming) tooLong(n int) error {
	return in.fail(&LimitError{What: "bytes of a message", Asked: int64(n), Limit: int64(in.size - 1)})
}

// ended reports whether all bytes were read. For an open message it may have to read more bytes
// from the transport.
func (in *Incoming) ended() (bool, error) {
	if in.err != nil {
		return false, in.err
	}
	if !in.open || in.chunks.Remaining() > 0 {
		return in.Left() == 0, nil
	}
	if in.Left() == 0 {
		return false, in.tooLong(in.size)
	}
	err := in.fill()
	if err != nil && !in.open && in.read == in.size {
		in.err = nil // the end of the message, not an error
		return true, nil
	}
	return false, err
}

// drop discards the rest of the message.
func (in *Incoming) drop() error {
	for {
		end, err := in.ended()
		if err != nil || end {
			return err
		}
		n := in.Left()
		if in.open {
			n = in.chunks.Remaining()
		}
		if err := in.Discard(n); err != nil {
			return err
		}
	}
}

// consume calls take until it has taken the next n bytes from chunks. take is called with the number
// of bytes to take.
func (in *Incoming) consume(n int, take func(k int)) error {
	if in.err != nil {
		return in.err
	}
	if in.open && n > in.Left() {
		return in.tooLong(in.read + n)
	}
	if n < 0 || n > in.Left() {
		return in.malformed("%d bytes needed, %d left", n, in.Left())
	}
	for n > 0 {
		if err := in.fill(); err != nil {
			return err
		}
		k := min(n, in.chunks.Remaining())
		take(k)
		in.read += k
		n -= k
	}
	return nil
}

// ReadFull reads the next len(p) bytes into p.
func (in *Incoming) ReadFull(p []byte) error {
	return in.consume(len(p), func(k int) {
		_, _ = in.chunks.Read(p[:k]) // chunks has at least k bytes
		p = p[k:]
	})
}

// Discard skips the next n bytes.
func (in *Incoming) Discard(n int) error {
	return in.consume(n, func(k int) { _, _ = in.chunks.Discard(k) })
}

// Varint reads a base-128 integer.
func (in *Incoming) Varint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		if in.err == nil && !in.open && in.Left() == 0 {
			return 0, in.malformed("the message ends within a number")
		}
		var b byte
		if err := in.consume(1, func(int) { b, _ = in.chunks.ReadByte() }); err != nil {
			return 0, err
		}
		if shift == 63 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, in.malformed("a number of more than 64 bits")
}

// Field reads the tag of the next field of a Protocol Buffers message. It returns io.EOF at the end
// of the message. The caller then reads the value with Varint, Bytes, or Length followed by
// ReadFull or Discard; or skips it with Skip.
func (in *Incoming) Field() (protowire.Number, protowire.Type, error) {
	if end, err := in.ended(); err != nil || end {
		if err == nil {
			err = io.EOF
		}
		return 0, 0, err
	}
	v, err := in.Varint()
	if err != nil {
		return 0, 0, err
	}
	num, typ := protowire.DecodeTag(v)
	if num < protowire.MinValidNumber {
		return 0, 0, in.malformed("field number %d", v>>3)
	}
	return num, typ, nil
}

// Length reads the length in bytes of a length-delimited field. The bytes of the field follow.
func (in *Incoming) Length(typ protowire.Type) (int, error) {
	if typ != protowire.BytesType {
		return 0, in.malformed("wire type %d, want a length-delimited field", typ)
	}
	v, err := in.Varint()
	if err != nil {
		return 0, err
	}
	if in.open && v > uint64(in.Left()) {
		return 0, in.tooLong(int(min(v, math.MaxInt32)))
	}
	if v > uint64(in.Left()) {
		return 0, in.malformed("a field of %d bytes, but only %d bytes of the message are left", v, in.Left())
	}
	return int(v), nil
}

// Bytes reads a length-delimited field into Go memory. The total of all calls for one message is
// limited to Limits.MaxHeader, so that a peer cannot fill the heap. If the limit is exceeded, Bytes
// returns a *LimitError.
func (in *Incoming) Bytes(typ protowire.Type) ([]byte, error) {
	n, err := in.Length(typ)
	if err != nil {
		return nil, err
	}
	if n > in.header {
		return nil, in.fail(&LimitError{What: "bytes of a message's small fields", Asked: int64(n), Limit: int64(in.header)})
	}
	in.header -= n
	b := make([]byte, n)
	return b, in.ReadFull(b)
}

// Skip discards the value of a field.
func (in *Incoming) Skip(typ protowire.Type) error {
	switch typ {
	case protowire.VarintType:
		_, err := in.Varint()
		return err
	case protowire.Fixed32Type:
		return in.Discard(4)
	case protowire.Fixed64Type:
		return in.Discard(8)
	case protowire.BytesType:
		n, err := in.Length(typ)
		if err != nil {
			return err
		}
		return in.Discard(n)
	default:
		return in.malformed("wire type %d", typ)
	}
}
