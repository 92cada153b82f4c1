package codec

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// packed is a compressed message that is being received. It holds at most one piece of decompressed
// data.
type packed struct {
	r      *Receiver
	with   encoding.Compressor
	left   int // compressed bytes that were not read from the transport yet
	chunks mem.BufferSlice
	next   int
	head   []byte
	plain  io.Reader // created by the first call of fetch, because creating it reads from the transport
	buf    []byte
}

// unpacked returns the reader of a message with size compressed bytes. It uses the compressor named
// in the stream's header.
func (r *Receiver) unpacked(size int) (*packed, error) {
	name := r.raw.RecvCompress()
	c := encoding.GetCompressor(name)
	if c == nil {
		return nil, status.Errorf(codes.Unimplemented, "the compression %.20q is not supported; send the message uncompressed", name)
	}
	return &packed{r: r, with: c, left: size}, nil
}

// Read implements io.Reader for the decompressor. It returns compressed bytes.
func (p *packed) Read(b []byte) (int, error) {
	if err := p.fill(); err != nil {
		return 0, err
	}
	n := copy(b, p.head)
	p.head = p.head[n:]
	return n, nil
}

// ReadByte implements io.ByteReader. Without it, decompressors such as compress/flate would wrap
// the reader in a buffer, and bytes after the end of the compressed data would remain undetected in
// that buffer.
func (p *packed) ReadByte() (byte, error) {
	if err := p.fill(); err != nil {
		return 0, err
	}
	b := p.head[0]
	p.head = p.head[1:]
	return b, nil
}

// fill makes head non-empty. It returns io.EOF at the end of the message.
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
		chunks, err := p.r.fetch(n)
		if err != nil {
			return err
		}
		p.left -= n
		p.chunks, p.next = chunks, 0
	}
	return nil
}

// fetch returns up to n decompressed bytes, valid until the next call. It returns io.EOF at the end
// of the message and an error if more compressed bytes follow.
func (p *packed) fetch(n int) (mem.BufferSlice, error) {
	if p.plain == nil {
		plain, err := p.with.Decompress(p)
		if err != nil {
			return nil, p.decodeError(err)
		}
		p.plain, p.buf = plain, make([]byte, piece)
	}
	n, err := io.ReadFull(p.plain, p.buf[:min(n, len(p.buf))])
	if n > 0 {
		return mem.BufferSlice{mem.SliceBuffer(p.buf[:n])}, nil
	}
	if !errors.Is(err, io.EOF) {
		return nil, p.decodeError(err)
	}
	if len(p.head) > 0 || p.next < len(p.chunks) || p.left > 0 {
		return nil, &WireError{Reason: "bytes after the end of the compressed data"}
	}
	return nil, io.EOF
}

// decodeError returns a transport error unchanged, and any other error as a WireError.
func (p *packed) decodeError(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return &WireError{Reason: "the message cannot be decompressed"}
}

// end releases the chunks and closes the decompressor, which may return it to a pool.
func (p *packed) end() {
	p.drop()
	if c, ok := p.plain.(io.Closer); ok {
		_ = c.Close()
	}
}

// drop frees the current chunks.
func (p *packed) drop() {
	p.chunks.Free()
	p.chunks, p.head, p.next = nil, nil, 0
}
