package flight

import (
	"errors"
	"math"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
)

func seeds(f *testing.F) (schema, batch []byte) {
	typ := testenv.Must(usmarrow.NewTensorType(arrow.PrimitiveTypes.Float32, []int{2}, usmarrow.TensorOptions{}))(f)
	s := schemaOf(typ, map[string]string{RowsKey: "3"})
	values := make([]byte, 24)
	b, _, err := batchHeader(s, typ, 3, values)
	require.NoError(f, err)
	return schemaHeader(s), b
}

// FuzzHeaders parses arbitrary IPC headers. The result is InvalidArgument or a consistent batch.
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
		for _, plain := range []bool{false, true} {
			b, err := parseBatch(header, elements, 4, plain)
			if err != nil {
				require.Equal(t, codes.InvalidArgument, code(err))
			} else {
				require.LessOrEqual(t, b.offset+b.rows*elements*4, b.body)
				require.GreaterOrEqual(t, min(b.rows, b.offset), 0)
			}
		}
		if _, _, _, err := parseSchema(header); err != nil {
			require.Equal(t, codes.InvalidArgument, code(err))
		}
		if _, _, err := streamedSchema(header); err != nil {
			require.Equal(t, codes.InvalidArgument, code(err))
		}
	})
}

// FuzzPut receives two arbitrary messages after a schema. They form a tensor or fail with the right
// error kind; in both cases all memory is released.
func FuzzPut(f *testing.F) {
	_, header := seeds(f)
	whole, err := (&data{header: header, body: mem.BufferSlice{mem.SliceBuffer(make([]byte, 64))}}).Buffers()
	require.NoError(f, err)
	f.Add([]byte(whole.Materialize()), []byte{})
	f.Add([]byte{}, []byte(whole.Materialize()))
	f.Add([]byte(whole.Materialize()), []byte(whole.Materialize()))
	f.Add(appendBytes(nil, 3, []byte("x")), appendBytes(nil, fieldBody, []byte("x")))
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(8<<20))
	typ := testenv.Must(usmarrow.NewTensorType(arrow.PrimitiveTypes.Float32, []int{2}, usmarrow.TensorOptions{}))(f)
	c := codec.New(4096)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		b := &builder{tensor: newTensor(schemaOf(typ, nil), typ), from: pool, ctx: t.Context(), wait: time.Millisecond, want: -1, limit: 1 << 20}
		for _, m := range [][]byte{first, second} {
			got := &incoming{builder: b}
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

// firstMessage is the first message of a put, read as a server does.
type firstMessage struct {
	data data
	name string
}

func (m *firstMessage) Receive(in *codec.Incoming) (err error) {
	if err = m.data.read(in, func(*codec.Incoming, int) error { return malformed("a body") }); err == nil {
		m.name, err = nameOf(m.data.descriptor)
	}
	return err
}

// FuzzFirstMessage receives an arbitrary descriptor and schema. The result is a valid name and a
// number of rows within the limit, or an error of the right kind. No memory is allocated.
func FuzzFirstMessage(f *testing.F) {
	typ := testenv.Must(usmarrow.NewTensorType(arrow.PrimitiveTypes.Float32, []int{2}, usmarrow.TensorOptions{}))(f)
	for _, name := range []string{"x", "a b", " a", "a/b", "é", "\x80", "", "\u202e", strings.Repeat("x", MaxName), strings.Repeat("é", MaxName)} {
		for _, rows := range []string{"3", "-1", "1048577", "99999999999999999999", "+3", "x"} {
			d, err := proto.Marshal(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}})
			if err != nil { // the name is not valid UTF-8
				d = appendBytes([]byte{8, 1}, 3, []byte(name))
			}
			f.Add(d, schemaHeader(schemaOf(typ, map[string]string{RowsKey: rows})))
		}
	}
	f.Add([]byte{8, 1, 26, 1, 'x', 26, 1, 'y'}, []byte{})
	f.Add([]byte{8, 2, 26, 1, 'x'}, []byte{})
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(8<<20))
	s := &Server{o: ServerOptions{Memory: pool, MaxTensor: 1 << 20}}
	c := codec.New(4096)
	f.Fuzz(func(t *testing.T, descriptor, header []byte) {
		m := &firstMessage{}
		err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(appendBytes(appendBytes(nil, fieldDescriptor, descriptor), fieldHeader, header))}, m)
		want := new(flight.FlightDescriptor)
		valid := proto.Unmarshal(descriptor, want) == nil && want.GetType() == flight.DescriptorPATH && len(want.GetPath()) == 1
		if valid {
			name := want.GetPath()[0]
			spaces := strings.TrimFunc(name, unicode.IsSpace) != name
			valid = len(name) > 0 && len(name) <= 128 && utf8.ValidString(name) && !spaces
			for _, r := range name {
				valid = valid && r != '/' && (r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r))
			}
		}
		if err != nil {
			var own *codec.WireError
			require.True(t, errors.As(err, &own) || code(err) == codes.InvalidArgument || code(err) == codes.ResourceExhausted, "%v", err)
			require.False(t, valid && len(descriptor)+len(header) < 2000, "%q: %v", descriptor, err)
			return
		}
		require.True(t, valid, "%q", m.name)
		require.Equal(t, want.GetPath()[0], m.name)
		b, err := s.begin(t.Context(), &m.data)
		require.Zero(t, pool.Stats().RequestedBytes.Current)
		if err != nil {
			require.Contains(t, []codes.Code{codes.InvalidArgument, codes.ResourceExhausted}, code(err))
			return
		}
		require.GreaterOrEqual(t, b.want, -1)
		require.LessOrEqual(t, int64(b.want)*int64(b.tensor.width), s.o.MaxTensor)
		rows, announced := b.tensor.schema.Metadata().GetValue(RowsKey)
		require.Equal(t, announced, b.want >= 0)
		if announced {
			n, whole := new(big.Int).SetString(rows, 10)
			require.True(t, whole && n.IsInt64() && n.Int64() == int64(b.want), rows)
		}
	})
}

// FuzzLocation parses locations named by servers. A valid location is unchanged by formatting and
// parsing, and Dial refuses to send a token unencrypted to another machine.
func FuzzLocation(f *testing.F) {
	for _, s := range []string{
		"grpc://127.0.0.1:80", "grpc+tcp://[::1]:80/", "grpc+tls://example.org:443", "grpc+unix:///tmp/s", "grpc+unix://s", "grpc+tcp://localhost:1", "grpc+tcp://localhost.example.org:1",
		"grpc+tcp://127.0.0.1", "grpc+tcp://[::1%lo]:1", "grpc+tcp://0:1", "grpc+tcp://127.1:1", "http://x:1", "", "://", "grpc+unix:///a?b#c%zz", "arrow-flight-reuse-connection://?", "grpc+tcp://a:b//",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLocation(s)
		client, dialed := Dial(s, ClientOptions{Token: "secret"})
		if dialed == nil {
			require.NoError(t, client.Close())
		}
		if err != nil {
			require.Error(t, dialed)
			return
		}
		require.Equal(t, l, testenv.Must(ParseLocation(l.String()))(t))
		switch l.Scheme {
		case "grpc+unix":
			require.True(t, strings.HasPrefix(l.Address, "/"), l)
		case "grpc+tls", "grpc+tcp":
			host, _, err := net.SplitHostPort(l.Address)
			require.NoError(t, err)
			address, err := netip.ParseAddr(host)
			here := host == "localhost" || err == nil && address.IsLoopback()
			if l.Scheme == "grpc+tcp" && !here {
				require.ErrorIs(t, dialed, ErrInsecure)
			}
		default:
			t.Fatalf("%q is %v", s, l)
		}
	})
}
