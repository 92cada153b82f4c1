package codec

import (
	"bytes"
	"compress/zlib"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// compressed sends n gzip-compressed bytes to the echo server and checks the reply.
func compressed(t *testing.T, b *testbed, n int) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := b.filled(t, n)
	defer out.Release()
	var leases Leases
	s := testenv.Must(b.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test/echo",
		grpc.WaitForReady(true), grpc.UseCompressor(gzip.Name)))(t)
	_ = s.SendMsg(&blob{leases: &leases, buffer: out, n: n})
	in := receivedBlob{pool: b.pool}
	err := s.RecvMsg(&in)
	if err == nil {
		want := testenv.Must(out.Bytes())(t)
		require.True(t, bytes.Equal(want[:n], testenv.Must(in.buffer.Bytes())(t)[:in.n]))
	}
	in.buffer.Release()
	cancel()
	_ = leases.Wait(ctx)
	return err
}

// Compressed messages of all sizes arrive intact.
func TestCompressed(t *testing.T) {
	b := newTestbed(t, Limits{MaxMessage: 8 << 20})
	for _, n := range []int{1, 1024, piece - 10, piece - 3, piece - 2, piece, 3*piece + 1, 8<<20 - 20} {
		require.NoError(t, compressed(t, b, n), n)
	}
	require.True(t, b.direct.Load())
	// A few kilobytes that decompress to more than the allowed size.
	err := compressed(t, b, 9<<20)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.NoError(t, compressed(t, b, 1000))
}

// unpack decodes a gzip-compressed message with at most limit decompressed bytes.
func unpack(data []byte, limit int) (fields int, err error) {
	p := &packed{with: encoding.GetCompressor(gzip.Name), from: incoming(data, 1000, 0)}
	defer p.end()
	in := &Incoming{size: limit + 1, open: true, header: 1 << 20, fetch: p.fetch}
	defer in.free()
	if fields, err = walk(in); err != nil {
		return fields, err
	}
	return fields, in.drop()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := testenv.Must(encoding.GetCompressor(gzip.Name).Compress(&out))(t)
	require.NoError(t, testenv.ErrorOf(w.Write(data)))
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestPackedMessages(t *testing.T) {
	message := []byte("\x08\x01\x12\x03abc")
	whole := gzipped(t, message)
	for _, c := range []struct {
		name  string
		data  []byte
		limit int
		want  string
	}{
		{"whole", whole, 100, ""},
		{"largest allowed length", whole, len(message), ""},
		{"one byte too long", whole, len(message) - 1, "bytes of a message: 7 requested, at most 6"},
		{"empty", nil, 100, "cannot be decompressed"},
		{"not gzip", message, 100, "cannot be decompressed"},
		{"truncated", whole[:len(whole)-9], 100, "cannot be decompressed"},
		{"trailing bytes", append(whole[:len(whole):len(whole)], "xyz"...), 100, "cannot be decompressed"},
		{"ends within a field", gzipped(t, message[:5]), 100, "ends within a field"},
		{"field longer than the message", gzipped(t, []byte("\x12\x20abc")), 100, "ends within a field"},
		{"decompression bomb", gzipped(t, append([]byte("\x12\x80\x80\x80\x08"), make([]byte, 16<<20)...)), 1 << 20, "at most 1048576 allowed"},
		{"many fields", gzipped(t, bytes.Repeat([]byte("\x10\x01"), 1<<20)), 1 << 20, "at most 1048576 allowed"},
	} {
		_, err := unpack(c.data, c.limit)
		if c.want == "" {
			require.NoError(t, err, c.name)
			continue
		}
		require.Error(t, err, c.name)
		require.Regexp(t, c.want, err.Error(), c.name)
		require.Contains(t, []codes.Code{codes.InvalidArgument, codes.ResourceExhausted}, status.Code(err), c.name)
	}
}

// deflate is a compressor whose format marks its own end.
type deflate struct{}

func (deflate) Name() string                                 { return "deflate" }
func (deflate) Compress(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(w), nil }
func (deflate) Decompress(r io.Reader) (io.Reader, error)    { return zlib.NewReader(r) }

// Bytes after the end of the compressed data are refused, even if the decompressor does not read
// that far.
func TestBytesAfterCompressedData(t *testing.T) {
	var b bytes.Buffer
	w, err := deflate{}.Compress(&b)
	require.NoError(t, err)
	require.NoError(t, testenv.ErrorOf(w.Write([]byte("\x08\x01"))))
	require.NoError(t, w.Close())
	read := func(data string) error {
		p := &packed{with: deflate{}, from: incoming([]byte(data), 1000, 0)}
		defer p.end()
		in := &Incoming{size: 101, open: true, header: 100, fetch: p.fetch}
		defer in.free()
		return in.drop()
	}
	require.NoError(t, read(b.String()))
	for _, more := range []string{"x", b.String(), strings.Repeat("x", 10000)} {
		require.ErrorContains(t, read(b.String()+more), "after the end")
	}
}

// FuzzPacked compares the decoding of compressed messages with that of uncompressed ones.
func FuzzPacked(f *testing.F) {
	f.Add([]byte("\x08\x96\x01\x0a\x03abc\x3d\x01\x02\x03\x04"), uint16(100))
	f.Add([]byte("\x12\x00\x1a\x02hi\x09\x01\x02\x03\x04\x05\x06\x07\x08"), uint16(5))
	f.Add([]byte("\x0b\x0c"), uint16(2))
	f.Fuzz(func(t *testing.T, data []byte, limit uint16) {
		want, werr := walk(incoming(data, 7, 1<<20))
		got, err := unpack(gzipped(t, data), int(limit))
		if len(data) > int(limit) {
			require.Error(t, err)
			return
		}
		require.Equal(t, want, got)
		require.Equal(t, werr == nil, err == nil, "%v %v", werr, err)
	})
}
