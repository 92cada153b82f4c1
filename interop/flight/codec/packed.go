package codec

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// packed decompresses a message. It holds at most one piece of decompressed data.
type packed struct {
	from  *Incoming // the compressed bytes
	with  encoding.Compressor
	plain io.Reader // created by the first call of fetch, because creating it reads from the transport
	buf   []byte
}

// unpack returns a decompressor for a message. It uses the compressor named in the stream's header.
func (r *Receiver) unpack(from *Incoming) (*packed, error) {
	name := r.raw.RecvCompress()
	c := encoding.GetCompressor(name)
	if c == nil {
		return nil, status.Errorf(codes.Unimplemented, "the compression %.20q is not supported; send the message uncompressed", name)
	}
	return &packed{from: from, with: c}, nil
}

// Read implements io.Reader for the decompressor. It returns compressed bytes.
func (p *packed) Read(b []byte) (int, error) {
	if p.from.Left() == 0 {
		return 0, io.EOF
	}
	if err := p.from.fill(); err != nil {
		return 0, err
	}
	n := min(len(b), p.from.chunks.Remaining())
	return n, p.from.ReadFull(b[:n])
}

// ReadByte implements io.ByteReader. Without it, decompressors such as compress/flate would wrap
// the reader in a buffer, and bytes after the end of the compressed data would remain undetected in
// that buffer.
func (p *packed) ReadByte() (byte, error) {
	if p.from.Left() == 0 {
		return 0, io.EOF
	}
	if err := p.from.fill(); err != nil {
		return 0, err
	}
	p.from.read++
	return p.from.chunks.ReadByte()
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
	if p.from.Left() > 0 {
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

// end closes the decompressor, which may return it to a pool.
func (p *packed) end() {
	if c, ok := p.plain.(io.Closer); ok {
		_ = c.Close()
	}
}
