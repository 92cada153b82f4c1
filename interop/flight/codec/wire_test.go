package codec

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/memmgr"
)

// incoming returns a message whose transport returns the requested bytes in chunks of at most chunk
// bytes.
func incoming(data []byte, chunk, header int) *Incoming {
	left := data
	return &Incoming{size: len(data), header: header, fetch: func(n int) (mem.BufferSlice, error) {
		var s mem.BufferSlice
		for n > 0 {
			k := min(n, chunk, len(left))
			s = append(s, mem.SliceBuffer(left[:k]))
			left = left[k:]
			n -= k
		}
		return s, nil
	}}
}

// walk reads all fields: it reads the bytes of fields with odd numbers and skips all other fields.
func walk(in *Incoming) (fields int, err error) {
	for ; ; fields++ {
		num, typ, err := in.Field()
		if errors.Is(err, io.EOF) {
			return fields, nil
		}
		if err != nil {
			return fields, err
		}
		if num%2 == 1 && typ == protowire.BytesType {
			_, err = in.Bytes(typ)
		} else {
			err = in.Skip(typ)
		}
		if err != nil {
			return fields, err
		}
	}
}

func TestHostileMessages(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       string
	}{
		{"within a tag", "\x80", "ends within a number"},
		{"within a number", "\x08\xff", "ends within a number"},
		{"number of 70 bits", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "more than 64 bits"},
		{"eleven bytes", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "more than 64 bits"},
		{"field 0", "\x00\x00", "field number 0"},
		{"group", "\x0b", "wire type 3"},
		{"end of group", "\x0c", "wire type 4"},
		{"wire type 7", "\x0f", "wire type 7"},
		{"longer than the message", "\x0a\x05abcd", "a field of 5 bytes, but only 4 bytes"},
		{"2^63 bytes", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "bytes, but only 0 bytes"},
		{"fixed32", "\x0dabc", "4 bytes needed, 3 left"},
		{"fixed64", "\x09abcdefg", "8 bytes needed, 7 left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, chunk := range []int{1, 3, 100} {
				_, err := walk(incoming([]byte(c.data), chunk, 100))
				require.ErrorIs(t, err, ErrMalformed)
				require.ErrorContains(t, err, c.want)
				require.Equal(t, codes.InvalidArgument, status.Code(err))
			}
		})
	}
	in := incoming([]byte("\x0a\x03abc\x0a\x03abc"), 2, 5)
	_, err := walk(in)
	require.ErrorIs(t, err, ErrLimit)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	_, _, again := in.Field()
	require.Equal(t, err, again, "later calls return the same error")
}

// A transport that ends early is an error, not the end of the message.
func TestTransportEnds(t *testing.T) {
	in := &Incoming{size: 10, fetch: func(int) (mem.BufferSlice, error) { return nil, io.ErrUnexpectedEOF }}
	require.ErrorIs(t, in.ReadFull(make([]byte, 3)), io.ErrUnexpectedEOF)
	whole := &Incoming{size: 10}
	whole.chunks.Reset(mem.BufferSlice{mem.SliceBuffer("abc")})
	require.NoError(t, whole.Discard(3))
	require.ErrorIs(t, whole.Discard(1), io.ErrUnexpectedEOF)
	whole.free()
	require.Error(t, whole.Discard(0))
}

// FuzzIncoming compares Incoming with protowire for arbitrary bytes and chunk sizes.
func FuzzIncoming(f *testing.F) {
	f.Add([]byte("\x08\x96\x01\x0a\x03abc\x3d\x01\x02\x03\x04"), uint8(1))
	f.Add([]byte("\x12\x00\x1a\x02hi\x09\x01\x02\x03\x04\x05\x06\x07\x08"), uint8(4))
	f.Add([]byte("\x0b\x0c"), uint8(2))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), uint8(0))
	pool := memmgr.NewPool(memmgr.Host())
	f.Fuzz(func(t *testing.T, data []byte, chunk uint8) {
		fields, err := walk(incoming(data, int(chunk)+1, 1<<20))
		want, rest := 0, data
		for len(rest) > 0 {
			_, typ, n := protowire.ConsumeField(rest)
			if n < 0 || typ == protowire.StartGroupType {
				break
			}
			rest = rest[n:]
			want++
		}
		require.Equal(t, want, fields)
		require.Equal(t, len(rest) == 0, err == nil, "%v", err)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
		}
		m := receivedBlob{pool: pool}
		err = m.Receive(incoming(data, int(chunk)+1, 100))
		if m.buffer.Valid() {
			got, berr := m.buffer.Bytes()
			require.NoError(t, berr)
			require.True(t, bytes.Contains(data, got[:m.n]))
			m.buffer.Release()
		}
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
		}
	})
}
