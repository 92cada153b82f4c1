package flight

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
)

// raw is a message of arbitrary bytes.
type raw []byte

func (r raw) Buffers() (mem.BufferSlice, error) { return mem.BufferSlice{mem.SliceBuffer(r)}, nil }

func path(names ...string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: names}
}

// bytesOf returns the encoded message.
func bytesOf(t *testing.T, d *data) raw {
	t.Helper()
	b := testenv.Must(d.Buffers())(t)
	return b.Materialize()
}

// floats returns the type of tensors with two float32 elements, and its schema.
func floats(t *testing.T, md map[string]string) (*usmarrow.TensorType, *arrow.Schema) {
	t.Helper()
	typ := testenv.Must(usmarrow.NewTensorType(arrow.PrimitiveTypes.Float32, []int{2}, usmarrow.TensorOptions{}))(t)
	return typ, schemaOf(typ, md)
}

func batchOf(t *testing.T, rows int) *data {
	t.Helper()
	typ, schema := floats(t, nil)
	values := make([]byte, rows*8)
	header, padding, err := batchHeader(schema, typ, rows, values)
	require.NoError(t, err)
	return &data{header: header, body: mem.BufferSlice{mem.SliceBuffer(append(values, make([]byte, padding)...))}}
}

// exchange sends messages to DoPut without checking them and returns the server's error.
func (b *testbed) exchange(ctx context.Context, messages ...any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := b.client.rpc.DoPut(ctx)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if s.SendMsg(m) != nil {
			break // Recv returns the reason
		}
	}
	_ = s.CloseSend()
	_, err = s.Recv()
	return err
}

// Invalid puts are refused with the gRPC code of the Flight specification. The former tensor stays,
// and the memory of the refused one is released.
func TestRefusals(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) {
		o.Memory = newPool(t, memmgr.WithLimit(64<<20))
		o.Limits = codec.Limits{MaxMessage: 8 << 20, MaxHeader: 4096}
		o.MaxTensor = 40 << 20
		o.MaxTensors = 2
		o.MemoryWait = 50 * time.Millisecond
	})
	former := numbers(t, b.mine, 100, 2)
	require.NoError(t, b.client.Put(t.Context(), "x", former))
	held := b.pool.Stats().RequestedBytes.Current

	_, plain := floats(t, nil)
	schema := func() *data { return &data{descriptor: path("x"), header: schemaHeader(plain)} }
	described := func(d *flight.FlightDescriptor) *data { return &data{descriptor: d, header: schemaHeader(plain)} }
	with := func(md map[string]string) *data {
		_, s := floats(t, md)
		return &data{descriptor: path("x"), header: schemaHeader(s)}
	}
	fields := func(f ...arrow.Field) *data {
		return &data{descriptor: path("x"), header: schemaHeader(arrow.NewSchema(f, nil))}
	}
	tensorField := func(name string) arrow.Field { return arrow.Field{Name: name, Type: plain.Field(0).Type} }
	whole := bytesOf(t, batchOf(t, 10))
	short := batchOf(t, 10)
	short.body = mem.BufferSlice{mem.SliceBuffer(make([]byte, 40))}
	large := make([]any, 0, 10)
	large = append(large, schema())
	for range 8 {
		large = append(large, batchOf(t, 900<<10)) // 7 MiB
	}
	invalid, exhausted := codes.InvalidArgument, codes.ResourceExhausted
	for _, c := range []struct {
		name     string
		code     codes.Code
		text     string
		messages []any
	}{
		{"no messages", invalid, "before the schema", nil},
		{"no descriptor", invalid, "path of one name", []any{described(nil)}},
		{"two names", invalid, "path of one name", []any{described(path("a", "b"))}},
		{"command", invalid, "path of one name", []any{described(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte("x")})}},
		{"empty name", invalid, "invalid name", []any{described(path(""))}},
		{"slash", invalid, "invalid name", []any{described(path("../x"))}},
		{"long name", invalid, "invalid name", []any{described(path(strings.Repeat("n", MaxName+1)))}},
		{"no schema", invalid, "IPC header", []any{&data{descriptor: path("x")}}},
		{"schema of random bytes", invalid, "IPC", []any{&data{descriptor: path("x"), header: []byte("0123456789abcdef")}}},
		{"batch instead of a schema", invalid, "type 3 with a body of 8 bytes, want a schema", []any{&data{descriptor: path("x"), header: batchOf(t, 1).header}}},
		{"two columns", invalid, "one column", []any{fields(tensorField("tensor"), tensorField("other"))}},
		{"no columns", invalid, "one column", []any{fields()}},
		{"another column", invalid, "one column", []any{fields(tensorField("x"))}},
		{"batch of tensors after floats", invalid, "2 arrays and 3 buffers, want 1 and 2", []any{fields(arrow.Field{Name: "tensor", Type: arrow.PrimitiveTypes.Float32}), whole}},
		{"bools", invalid, "want arrow.fixed_shape_tensor, or int8", []any{fields(arrow.Field{Name: "tensor", Type: arrow.FixedWidthTypes.Boolean})}},
		{"text", invalid, "want arrow.fixed_shape_tensor, or int8", []any{fields(arrow.Field{Name: "tensor", Type: arrow.BinaryTypes.String})}},
		{"schema twice", invalid, "type 1, want a record batch", []any{schema(), schema()}},
		{"body with the schema", invalid, "the message with the schema has a body", []any{&data{descriptor: path("x"), header: schemaHeader(plain), body: mem.BufferSlice{mem.SliceBuffer("body")}}}},
		{"rows in words", invalid, "not a number of rows", []any{with(map[string]string{RowsKey: "many"})}},
		{"negative rows", invalid, "not a number of rows", []any{with(map[string]string{RowsKey: "-1"})}},
		{"rows beyond the limit", exhausted, "rows of a tensor", []any{with(map[string]string{RowsKey: "100000000"})}},
		{"fewer rows than announced", invalid, "10 rows, but 20", []any{with(map[string]string{RowsKey: "20"}), batchOf(t, 10)}},
		{"more rows than announced", invalid, "20 rows, but 15", []any{with(map[string]string{RowsKey: "15"}), batchOf(t, 10), batchOf(t, 10)}},
		{"body too short", invalid, "body of 40 bytes", []any{schema(), short}},
		{"no body", invalid, "a body of 0 bytes", []any{schema(), &data{header: batchOf(t, 10).header}}},
		{"header after the body", invalid, "the header follows the body", []any{schema(), append(whole[:len(whole):len(whole)], appendBytes(nil, fieldHeader, []byte("x"))...)}},
		{"body first", invalid, "IPC header", []any{schema(), raw(appendBytes(nil, fieldBody, make([]byte, 100)))}},
		{"two bodies", invalid, "more than one body", []any{schema(), append(whole[:len(whole):len(whole)], appendBytes(nil, fieldBody, []byte("x"))...)}},
		{"broken descriptor", invalid, "descriptor", []any{raw(appendBytes(nil, fieldDescriptor, []byte{0xff}))}},
		{"truncated field", invalid, "malformed message", []any{schema(), whole[:len(whole)-5]}},
		{"endless number", invalid, "malformed message", []any{raw(strings.Repeat("\xff", 20))}},
		{"group", invalid, "malformed message", []any{raw{5<<3 | byte(protowire.StartGroupType)}}},
		{"large header", exhausted, "small fields", []any{raw(appendBytes(nil, fieldHeader, make([]byte, 5000)))}},
		{"large message", exhausted, "bytes of a message", []any{schema(), batchOf(t, 2<<20)}},
		{"large tensor", exhausted, "bytes of a tensor", large},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.exchange(t.Context(), c.messages...)
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.ErrorContains(t, err, c.text)
		})
	}
	// The store accepts a second tensor, but not a third. Then memory is exhausted before other limits.
	require.NoError(t, b.exchange(t.Context(), described(path("y")), batchOf(t, 10)))
	err := b.exchange(t.Context(), described(path("z")), batchOf(t, 10))
	require.Equal(t, exhausted, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "tensors in the store")
	require.NoError(t, b.client.Free(t.Context(), "y"))
	hog := testenv.Must(memmgr.New(b.pool, memmgr.Request{Size: 50 << 20}))(t)
	err = b.exchange(t.Context(), large[:7]...)
	require.Equal(t, exhausted, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "out of memory")
	hog.Release()

	require.Equal(t, []string{"x"}, b.server.Store().Names(""))
	require.Equal(t, held, b.pool.Stats().RequestedBytes.Current)
	sameCopy(t, former, testenv.Must(b.client.Get(t.Context(), "x", b.mine))(t))

	require.Equal(t, codes.NotFound, status.Code(testenv.ErrorOf(b.client.Get(t.Context(), "nowhere", b.mine))))
	require.Equal(t, invalid, status.Code(testenv.ErrorOf(b.client.Info(t.Context(), "a/b"))))
	require.Equal(t, codes.Unimplemented, status.Code(testenv.ErrorOf(b.client.Action(t.Context(), "other", nil))))
	s := testenv.Must(b.client.rpc.DoGet(metadata.AppendToOutgoingContext(t.Context(), BatchHeader, "x"), &flight.Ticket{Ticket: []byte("x")}))(t)
	require.Equal(t, invalid, status.Code(testenv.ErrorOf(s.Recv())))
}

// A batch is refused if its header declares nulls.
func TestNullsAreRefused(t *testing.T) {
	header := batchOf(t, 10).header
	require.Equal(t, batch{rows: 10, body: 80, offset: 0}, testenv.Must(parseBatch(header, 2, 4, false))(t))
	_, record, _, err := message(header)
	require.NoError(t, err)
	nodes, _ := vector(record, 1)
	header[nodes+8] = 1 // null_count of the first node
	_, err = parseBatch(header, 2, 4, false)
	require.ErrorIs(t, err, usmarrow.ErrNulls)
	require.Equal(t, codes.InvalidArgument, code(err))
}

// A call whose peer stops sending or reading ends after the stall time and releases its memory.
func TestStall(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) { o.Stall = 100 * time.Millisecond })
	_, plain := floats(t, nil)
	s := testenv.Must(b.client.rpc.DoPut(t.Context()))(t)
	for _, m := range []*data{{descriptor: path("x"), header: schemaHeader(plain)}, batchOf(t, 1000)} {
		if s.SendMsg(m) != nil {
			break // the call has already stalled on a slow machine; Recv returns the error
		}
	}
	_, err := s.Recv()
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "no byte moved")

	a := numbers(t, b.pool, 16<<20)
	require.NoError(t, b.server.Store().Put("big", a)) // stored directly: a put could exceed the stall time on a slow machine
	a.Release()
	ctx, cancel := context.WithCancel(t.Context())
	g := testenv.Must(b.client.rpc.DoGet(ctx, &flight.Ticket{Ticket: []byte("big")}))(t)
	_, err = g.Recv() // the call has begun
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.server.Stats().Streams == 0 }, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, b.client.Free(t.Context(), "big"))
	require.Eventually(t, func() bool { return b.pool.Stats().RequestedBytes.Current == 0 }, time.Minute, time.Millisecond)
}

// A call ends with its context, on both sides.
func TestCancelled(t *testing.T) {
	b := newTestbed(t, nil)
	a := numbers(t, b.mine, 8<<20)
	require.NoError(t, b.client.Put(t.Context(), "x", a))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, codes.Canceled, status.Code(b.client.Put(ended, "y", a)))
	require.Equal(t, codes.Canceled, status.Code(testenv.ErrorOf(b.client.Get(ended, "x", b.mine))))
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	require.Equal(t, codes.DeadlineExceeded, status.Code(b.client.Put(late, "y", a)))
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		_ = b.client.Put(ctx, "z", a)
		if got, err := b.client.Get(ctx, "x", b.mine); err == nil {
			got.Release()
		}
		cancel()
	}
	waitReleased(t)
	// If the server had received a put completely before its context ended, it still stores the tensor.
	require.Eventually(t, func() bool { return b.server.Stats().Streams == 0 }, time.Minute, time.Millisecond)
	_ = b.client.Free(t.Context(), "z")
	require.Eventually(t, func() bool { return b.pool.Stats().RequestedBytes.Current == 32<<20 }, time.Minute, time.Millisecond)
}
