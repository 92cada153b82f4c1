package codec

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// packed is a compressed message on its way in. What it holds unpacked is one piece.
type packed struct {
	r      *Receiver
	with   encoding.Compressor
	left   int // compressed bytes that were not taken from the transport
	chunks mem.BufferSlice
	next   int
	head   []byte
	plain  io.Reader // made when bytes are first asked for: it waits for some
	buf    []byte
}

// unpacked begins a message of so many compressed bytes, with the compressor that gRPC
// knows by the name in the stream's header.
func (r *Receiver) unpacked(size int) (*packed, error) {
	name := r.raw.RecvCompress()
	c := encoding.GetCompressor(name)
	if c == nil {
		return nil, status.Errorf(codes.Unimplemented, "the message is compressed (%.20q), which is not served here; send it as it is", name)
	}
	return &packed{r: r, with: c, left: size}, nil
}

// Read implements io.Reader for the decompressor: compressed bytes, as they come.
func (p *packed) Read(b []byte) (int, error) {
	if err := p.fill(); err != nil {
		return 0, err
	}
	n := copy(b, p.head)
	p.head = p.head[n:]
	return n, nil
}

// ReadByte implements io.ByteReader: decompressors of compress/flate's kind put a buffer before what
// has none, and what they leave in it, behind the end, nobody sees.
func (p *packed) ReadByte() (byte, error) {
	if err := p.fill(); err != nil {
		return 0, err
	}
	b := p.head[0]
	p.head = p.head[1:]
	return b, nil
}

// fill makes head non-empty; io.EOF at the end of the message.
func (p *packed) fill() error {
	for len(p.head) == 0 {
		if p.next < len(p.chunks) {
			p.head = p.chunks[p.next].ReadOnlyData()
			p.next++
			continue
		}
		if p.left == 0 {
			return io.EOF
		}
		p.drop()
		n := min(p.left, piece)
		chunks, err := p.r.more(n)
		if err != nil {
			return err
		}
		p.left -= n
		p.chunks, p.next = chunks, 0
	}
	return nil
}

// more gives up to n bytes of the message; io.EOF is its end, behind which nothing may
// follow. What it gives is good until the next call.
func (p *packed) more(n int) (mem.BufferSlice, error) {
	if p.plain == nil {
		plain, err := p.with.Decompress(p)
		if err != nil {
			return nil, p.broken(err)
		}
		p.plain, p.buf = plain, make([]byte, piece)
	}
	n, err := io.ReadFull(p.plain, p.buf[:min(n, len(p.buf))])
	if n > 0 {
		return mem.BufferSlice{mem.SliceBuffer(p.buf[:n])}, nil
	}
	if !errors.Is(err, io.EOF) {
		return nil, p.broken(err)
	}
	if len(p.head) > 0 || p.next < len(p.chunks) || p.left > 0 {
		return nil, &WireError{Reason: "bytes behind the end of what was compressed"}
	}
	return nil, io.EOF
}

// broken is the transport's error, or else one of bytes that cannot be unpacked.
func (p *packed) broken(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return &WireError{Reason: "it cannot be decompressed"}
}

// end lets go of everything; some decompressors go back to a pool when they are closed.
func (p *packed) end() {
	p.drop()
	if c, ok := p.plain.(io.Closer); ok {
		_ = c.Close()
	}
}

func (p *packed) drop() {
	p.chunks.Free()
	p.chunks, p.head, p.next = nil, nil, 0
}
