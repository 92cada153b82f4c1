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

	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
)

// raw is a message of any bytes.
type raw []byte

func (r raw) Buffers() (mem.BufferSlice, error) { return mem.BufferSlice{mem.SliceBuffer(r)}, nil }

func path(names ...string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: names}
}

// bytesOf is a message as it travels.
func bytesOf(t *testing.T, d *data) raw {
	t.Helper()
	b, err := d.Buffers()
	require.NoError(t, err)
	return b.Materialize()
}

// floats is the type of tensors of two floats, its schema, and a batch of rows.
func floats(t *testing.T, md map[string]string) (*usmarrow.TensorType, *arrow.Schema) {
	t.Helper()
	typ, err := usmarrow.NewTensorType(arrow.PrimitiveTypes.Float32, []int{2}, usmarrow.TensorOptions{})
	require.NoError(t, err)
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

// exchange puts messages as they are and returns how the server answers.
func (b *testbed) exchange(ctx context.Context, messages ...any) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := b.client.rpc.DoPut(ctx)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if s.SendMsg(m) != nil {
			break // the answer says why
		}
	}
	_ = s.CloseSend()
	_, err = s.Recv()
	return err
}

// What is no tensor is told as Flight's standard has it, the former tensor stays, and
// no byte of the refused one.
func TestRefusals(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) {
		o.Memory = newPool(t, memmgr.WithLimit(64<<20))
		o.Limits = codec.Limits{MaxMessage: 8 << 20, MaxHeader: 4096}
		o.MaxTensor = 40 << 20
		o.MaxTensors = 2
		o.MemoryWait = 50 * time.Millisecond
	})
	former := numbers(t, b.mine, 100, 2)
	defer former.Release()
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
		{"nothing", invalid, "before the schema", nil},
		{"no descriptor", invalid, "path of one name", []any{described(nil)}},
		{"two names", invalid, "path of one name", []any{described(path("a", "b"))}},
		{"command", invalid, "path of one name", []any{described(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte("x")})}},
		{"empty name", invalid, "invalid name", []any{described(path(""))}},
		{"slash", invalid, "invalid name", []any{described(path("../x"))}},
		{"long name", invalid, "invalid name", []any{described(path(strings.Repeat("n", MaxName+1)))}},
		{"no schema", invalid, "IPC header", []any{&data{descriptor: path("x")}}},
		{"rubbish for a schema", invalid, "IPC", []any{&data{descriptor: path("x"), header: []byte("0123456789abcdef")}}},
		{"batch for a schema", invalid, "type 3 with a body of 8 bytes where the schema", []any{&data{descriptor: path("x"), header: batchOf(t, 1).header}}},
		{"two columns", invalid, "one column", []any{fields(tensorField("tensor"), tensorField("other"))}},
		{"no columns", invalid, "one column", []any{fields()}},
		{"another column", invalid, "one column", []any{fields(tensorField("x"))}},
		{"floats", invalid, "not arrow.fixed_shape_tensor", []any{fields(arrow.Field{Name: "tensor", Type: arrow.PrimitiveTypes.Float32})}},
		{"text", invalid, "not arrow.fixed_shape_tensor", []any{fields(arrow.Field{Name: "tensor", Type: arrow.BinaryTypes.String})}},
		{"schema twice", invalid, "type 1 where a record batch", []any{schema(), schema()}},
		{"body with the schema", invalid, "in the message of the schema", []any{&data{descriptor: path("x"), header: schemaHeader(plain), body: mem.BufferSlice{mem.SliceBuffer("body")}}}},
		{"rows in words", invalid, "not a number of rows", []any{with(map[string]string{RowsKey: "many"})}},
		{"negative rows", invalid, "not a number of rows", []any{with(map[string]string{RowsKey: "-1"})}},
		{"rows beyond the limit", exhausted, "rows of a tensor", []any{with(map[string]string{RowsKey: "100000000"})}},
		{"fewer rows than announced", invalid, "10 rows where 20", []any{with(map[string]string{RowsKey: "20"}), batchOf(t, 10)}},
		{"more rows than announced", invalid, "20 rows where 15", []any{with(map[string]string{RowsKey: "15"}), batchOf(t, 10), batchOf(t, 10)}},
		{"body too short", invalid, "body of 40 bytes", []any{schema(), short}},
		{"no body", invalid, "without a body", []any{schema(), &data{header: batchOf(t, 10).header}}},
		{"header behind the body", invalid, "behind its body", []any{schema(), append(whole[:len(whole):len(whole)], appendBytes(nil, fieldHeader, []byte("x"))...)}},
		{"body first", invalid, "IPC header", []any{schema(), raw(appendBytes(nil, fieldBody, make([]byte, 100)))}},
		{"two bodies", invalid, "two bodies", []any{schema(), append(whole[:len(whole):len(whole)], appendBytes(nil, fieldBody, []byte("x"))...)}},
		{"broken descriptor", invalid, "descriptor", []any{raw(appendBytes(nil, fieldDescriptor, []byte{0xff}))}},
		{"truncated field", invalid, "malformed message", []any{schema(), whole[:len(whole)-5]}},
		{"endless number", invalid, "malformed message", []any{raw(strings.Repeat("\xff", 20))}},
		{"group", invalid, "malformed message", []any{raw{5<<3 | byte(protowire.StartGroupType)}}},
		{"large header", exhausted, "small fields", []any{raw(appendBytes(nil, fieldMetadata, make([]byte, 5000)))}},
		{"large message", exhausted, "bytes of a message", []any{schema(), batchOf(t, 2<<20)}},
		{"large tensor", exhausted, "bytes of a tensor", large},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := b.exchange(t.Context(), c.messages...)
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.ErrorContains(t, err, c.text)
		})
	}
	// Another name fits, a third does not; and memory runs out before the limits do.
	require.NoError(t, b.exchange(t.Context(), described(path("y")), batchOf(t, 10)))
	err := b.exchange(t.Context(), described(path("z")), batchOf(t, 10))
	require.Equal(t, exhausted, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "tensors in the store")
	require.NoError(t, b.client.Free(t.Context(), "y"))
	hog, err := memmgr.New(b.pool, memmgr.Request{Size: 50 << 20})
	require.NoError(t, err)
	err = b.exchange(t.Context(), large[:7]...)
	require.Equal(t, exhausted, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "out of memory")
	hog.Release()

	require.Equal(t, []string{"x"}, b.server.Store().Names(""))
	require.Equal(t, held, b.pool.Stats().RequestedBytes.Current)
	got, err := b.client.Get(t.Context(), "x", b.mine)
	require.NoError(t, err)
	same(t, former, got)
	got.Release()

	_, err = b.client.Get(t.Context(), "nowhere", b.mine)
	require.Equal(t, codes.NotFound, status.Code(err))
	_, err = b.client.Info(t.Context(), "a/b")
	require.Equal(t, invalid, status.Code(err))
	_, err = b.client.action(t.Context(), "other", "")
	require.Equal(t, codes.Unimplemented, status.Code(err))
	s, err := b.client.rpc.DoGet(metadata.AppendToOutgoingContext(t.Context(), BatchHeader, "x"), &flight.Ticket{Ticket: []byte("x")})
	require.NoError(t, err)
	_, err = s.Recv()
	require.Equal(t, invalid, status.Code(err), "%v", err)
}

// A batch with nulls is refused by the numbers of its header, whatever its bitmaps say.
func TestNullsAreRefused(t *testing.T) {
	header := batchOf(t, 10).header
	b, err := parseBatch(header, 2, 4)
	require.NoError(t, err)
	require.Equal(t, batch{rows: 10, body: 80, offset: 0, size: 80}, b)
	_, tab, _, err := message(header)
	require.NoError(t, err)
	at := tab.field(1)
	to, _ := u32(header, at)
	header[at+to+4+8] = 1 // null_count of the first node
	_, err = parseBatch(header, 2, 4)
	require.ErrorIs(t, err, usmarrow.ErrNulls)
	require.Equal(t, codes.InvalidArgument, code(err))
}

// A peer that stops sending, or reading, is told so after a while and holds nothing.
func TestStall(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) { o.Stall = 100 * time.Millisecond })
	_, plain := floats(t, nil)
	s, err := b.client.rpc.DoPut(t.Context())
	require.NoError(t, err)
	for _, m := range []*data{{descriptor: path("x"), header: schemaHeader(plain)}, batchOf(t, 1000)} {
		if s.SendMsg(m) != nil {
			break // this client was too slow before it stopped, on a machine under load: the answer says so
		}
	}
	_, err = s.Recv()
	require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "no byte moved")

	a := numbers(t, b.pool, 16<<20)
	require.NoError(t, b.server.Store().Put("big", a)) // by the server, whose Stall no machine is too slow for
	a.Release()
	ctx, cancel := context.WithCancel(t.Context())
	g, err := b.client.rpc.DoGet(ctx, &flight.Ticket{Ticket: []byte("big")})
	require.NoError(t, err)
	_, err = g.Recv() // it has begun
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
	defer a.Release()
	require.NoError(t, b.client.Put(t.Context(), "x", a))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, codes.Canceled, status.Code(b.client.Put(ended, "y", a)))
	_, err := b.client.Get(ended, "x", b.mine)
	require.Equal(t, codes.Canceled, status.Code(err), "%v", err)
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
	settled(t)
	// A put that was all there when its client gave up is kept a moment later.
	require.Eventually(t, func() bool { return b.server.Stats().Streams == 0 }, time.Minute, time.Millisecond)
	_ = b.client.Free(t.Context(), "z")
	require.Eventually(t, func() bool { return b.pool.Stats().RequestedBytes.Current == 32<<20 }, time.Minute, time.Millisecond)
}
