package codec

import (
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/memmgr"
)

// piece is how many bytes are asked of the transport at a time: enough that the cost of
// asking does not show, little enough that what was copied is still in the cache.
const piece = 64 << 10

// Incoming is one message on its way in. After an error of one of its methods only the
// same error comes.
type Incoming struct {
	size   int                                  // of the message; while open one more than it may have
	wire   int                                  // as it was announced: compressed
	open   bool                                 // compressed: it has as many bytes as come
	read   int                                  // bytes that the caller has had
	more   func(n int) (mem.BufferSlice, error) // the next n bytes of the message; nil when all are here
	here   int                                  // bytes taken from the transport
	chunks mem.BufferSlice                      // what was taken and not read
	next   int                                  // index of the chunk after current
	head   []byte                               // rest of the current chunk
	header int                                  // bytes that Bytes may still give
	err    error
}

// Size returns the length of the message in bytes. That of a compressed one is not known
// before its end: until then it is the most that is allowed.
func (in *Incoming) Size() int { return in.size }

// Announced returns the bytes that the message takes on the wire: fewer than Size where it
// is compressed.
func (in *Incoming) Announced() int { return in.wire }

// Left returns the bytes that were not read yet; see Size.
func (in *Incoming) Left() int { return in.size - in.read }

func (in *Incoming) take(chunks mem.BufferSlice) {
	in.chunks, in.next, in.head = chunks, 0, nil
	in.here += chunks.Len()
}

func (in *Incoming) free() {
	in.chunks.Free()
	in.chunks, in.head = nil, nil
	if in.err == nil {
		in.err = io.ErrClosedPipe
	}
}

func (in *Incoming) fail(err error) error {
	if in.err == nil {
		in.err = err
	}
	return in.err
}

func (in *Incoming) malformed(format string, args ...any) error {
	return in.fail(&WireError{Offset: int64(in.read), Reason: fmt.Sprintf(format, args...)})
}

// fill makes head non-empty; the caller knows that bytes are left.
func (in *Incoming) fill() error {
	for len(in.head) == 0 {
		if in.next < len(in.chunks) {
			in.head = in.chunks[in.next].ReadOnlyData()
			in.next++
			continue
		}
		n := min(in.size-in.here, piece)
		if n <= 0 || in.more == nil {
			return in.fail(io.ErrUnexpectedEOF)
		}
		in.chunks.Free()
		in.chunks = nil
		chunks, err := in.more(n)
		if in.open && errors.Is(err, io.EOF) {
			in.size, in.open = in.here, false
			return in.malformed("it ends within a field")
		}
		if err != nil {
			return in.fail(err)
		}
		in.take(chunks)
	}
	return nil
}

// tooLong is the error of an open message that would have so many bytes.
func (in *Incoming) tooLong(n int) error {
	return in.fail(&LimitError{What: "bytes of a message", Asked: int64(n), Limit: int64(in.size - 1)})
}

// ended tells whether all bytes were read. Of an open message it asks for more.
func (in *Incoming) ended() (bool, error) {
	if in.err != nil {
		return false, in.err
	}
	if !in.open || len(in.head) > 0 {
		return in.Left() == 0, nil
	}
	if in.Left() == 0 {
		return false, in.tooLong(in.size)
	}
	err := in.fill()
	if err != nil && !in.open && in.read == in.size {
		in.err = nil // what there is, is read
		return true, nil
	}
	return false, err
}

// drop reads to the end.
func (in *Incoming) drop() error {
	for {
		end, err := in.ended()
		if err != nil || end {
			return err
		}
		n := in.Left()
		if in.open {
			n = len(in.head)
		}
		if err := in.Discard(n); err != nil {
			return err
		}
	}
}

// each passes the next n bytes on, as they lie.
func (in *Incoming) each(n int, use func([]byte)) error {
	if in.err != nil {
		return in.err
	}
	if in.open && n > in.Left() {
		return in.tooLong(in.read + n)
	}
	if n < 0 || n > in.Left() {
		return in.malformed("%d bytes wanted, %d left", n, in.Left())
	}
	for n > 0 {
		if err := in.fill(); err != nil {
			return err
		}
		k := min(n, len(in.head))
		use(in.head[:k])
		in.head = in.head[k:]
		in.read += k
		n -= k
	}
	return nil
}

// ReadFull reads the next len(p) bytes into p.
func (in *Incoming) ReadFull(p []byte) error {
	return in.each(len(p), func(b []byte) { p = p[copy(p, b):] })
}

// Discard drops the next n bytes.
func (in *Incoming) Discard(n int) error { return in.each(n, func([]byte) {}) }

// Varint reads a base-128 number.
func (in *Incoming) Varint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		if in.err == nil && !in.open && in.Left() == 0 {
			return 0, in.malformed("it ends within a number")
		}
		var b byte
		if err := in.each(1, func(p []byte) { b = p[0] }); err != nil {
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

// Field reads the tag of the next field of a Protocol Buffers message; io.EOF is the
// end of the message. The field is then read by Varint, Bytes, or Length and what
// follows it, or passed over by Skip.
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

// Length reads the length in bytes of a length-delimited field, whose bytes are next.
func (in *Incoming) Length(typ protowire.Type) (int, error) {
	if typ != protowire.BytesType {
		return 0, in.malformed("wire type %d where bytes belong", typ)
	}
	v, err := in.Varint()
	if err != nil {
		return 0, err
	}
	if in.open && v > uint64(in.Left()) {
		return 0, in.tooLong(int(min(v, math.MaxInt32)))
	}
	if v > uint64(in.Left()) {
		return 0, in.malformed("a field of %d bytes in a message of which %d are left", v, in.Left())
	}
	return int(v), nil
}

// Bytes reads a length-delimited field into memory of Go. All of a message together
// may take Limits.MaxHeader, so that a peer cannot make the heap large; *LimitError
// otherwise.
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

// Skip passes over a field that the caller does not know.
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

// Memory asks a resource for memory, charging whoever stands behind it, and then reads
// the next n bytes to its start; request.Size is at least n, 0 for n. The caller owns
// the buffer. On error there is none, and nothing of the bytes was read if it was the
// resource that refused. The host must be able to write the memory.
func (in *Incoming) Memory(r memmgr.Resource, request memmgr.Request, n int) (memmgr.Buffer, error) {
	if in.err != nil {
		return memmgr.Buffer{}, in.err
	}
	if n < 0 || n > in.Left() {
		return memmgr.Buffer{}, in.malformed("%d bytes wanted, %d left", n, in.Left())
	}
	request.Size = max(request.Size, uintptr(n))
	buffer, err := memmgr.New(r, request)
	if err != nil {
		return memmgr.Buffer{}, err
	}
	data, err := buffer.Bytes()
	if err == nil {
		err = in.ReadFull(data[:n])
	}
	if err != nil {
		buffer.Release()
		return memmgr.Buffer{}, err
	}
	return buffer, nil
}
