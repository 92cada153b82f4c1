package flight

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
)

func seeds(f *testing.F) (schema, batch []byte) {
	typ, err := usmarrow.NewTensorType(arrow.PrimitiveTypes.Float32, []int{2}, usmarrow.TensorOptions{})
	require.NoError(f, err)
	s := schemaOf(typ, map[string]string{RowsKey: "3"})
	values := make([]byte, 24)
	b, _, err := batchHeader(s, typ, 3, values)
	require.NoError(f, err)
	return schemaHeader(s), b
}

// FuzzHeaders reads IPC headers of any bytes: an error that gRPC has a code for, or
// numbers that add up.
func FuzzHeaders(f *testing.F) {
	schema, header := seeds(f)
	f.Add(schema, 2)
	f.Add(header, 2)
	f.Add([]byte{}, 1)
	f.Add([]byte{4, 0, 0, 0, 4, 0, 4, 0, 4, 0, 0, 0}, 1)
	f.Fuzz(func(t *testing.T, header []byte, elements int) {
		if elements < 1 || elements > math.MaxInt32 {
			return
		}
		b, err := parseBatch(header, elements, 4)
		if err != nil {
			require.Equal(t, codes.InvalidArgument, code(err))
		} else {
			require.Equal(t, b.rows*elements*4, b.size)
			require.LessOrEqual(t, b.offset+b.size, b.body)
			require.GreaterOrEqual(t, min(b.rows, b.offset), 0)
		}
		if _, _, err = parseSchema(header); err != nil {
			require.Equal(t, codes.InvalidArgument, code(err))
		}
		if _, _, err = streamedSchema(header); err != nil {
			require.Equal(t, codes.InvalidArgument, code(err))
		}
	})
}

// FuzzPut is a put of any two messages after a schema: it fails with a code of its own
// or makes a tensor, and leaves no memory behind.
func FuzzPut(f *testing.F) {
	_, header := seeds(f)
	whole, err := (&data{header: header, body: mem.BufferSlice{mem.SliceBuffer(make([]byte, 64))}}).Buffers()
	require.NoError(f, err)
	f.Add([]byte(whole.Materialize()), []byte{})
	f.Add([]byte{}, []byte(whole.Materialize()))
	f.Add([]byte(whole.Materialize()), []byte(whole.Materialize()))
	f.Add(appendBytes(nil, fieldMetadata, []byte("x")), appendBytes(nil, fieldBody, []byte("x")))
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(8<<20))
	typ, err := usmarrow.NewTensorType(arrow.PrimitiveTypes.Float32, []int{2}, usmarrow.TensorOptions{})
	require.NoError(f, err)
	c := codec.New(4096)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		b := &builder{tensor: newTensor(schemaOf(typ, nil), typ), from: pool, ctx: t.Context(), wait: time.Millisecond, want: -1, limit: 1 << 20}
		for _, m := range [][]byte{first, second} {
			got := &received{builder: b}
			if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(m)}, got); err != nil {
				var own *codec.WireError
				k := code(err)
				require.True(t, k == codes.InvalidArgument || k == codes.ResourceExhausted || errors.As(err, &own), "%v: %v", k, err)
				break
			}
		}
		rows := 0
		for _, c := range b.tensor.chunks {
			require.LessOrEqual(t, c.rows, c.room)
			rows += c.rows
		}
		require.GreaterOrEqual(t, rows, b.tensor.rows)
		b.tensor.release()
		require.Zero(t, pool.Stats().RequestedBytes.Current)
	})
}
