package flight

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"net/netip"
	"slices"
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

// shardSaid is the Shard that a text is, by a reader of its own: an object with the four
// members by their exact names, whole numbers that no null stands for, no name twice.
func shardSaid(text []byte) (s Shard, ok bool) {
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if !json.Valid(text) || d.Decode(&members) != nil {
		return s, false
	}
	// As many names as an order of tokens has: a name that is there twice is one member.
	names := 0
	var open []json.Token
	name := false
	for d = json.NewDecoder(bytes.NewReader(text)); ; {
		t, err := d.Token()
		if err != nil {
			break
		}
		switch {
		case t == json.Delim('{') || t == json.Delim('['):
			open = append(open, t)
			name = len(open) == 1
		case t == json.Delim('}') || t == json.Delim(']'):
			open = open[:len(open)-1]
			name = true
		case len(open) == 1:
			if name {
				names++
			}
			name = !name
		}
	}
	id, ok := members["id"].(string)
	s.ID = id
	for key, n := range map[string]*int{"first": &s.First, "rows": &s.Rows, "total": &s.Total} {
		number, _ := members[key].(json.Number)
		v, whole := new(big.Int).SetString(string(number), 10)
		if !whole || !v.IsInt64() || v.Sign() < 0 {
			return s, false
		}
		*n = int(v.Int64())
	}
	end := new(big.Int).Add(big.NewInt(int64(s.First)), big.NewInt(int64(s.Rows)))
	return s, ok && names == len(members) && end.Cmp(big.NewInt(int64(s.Total))) <= 0
}

// FuzzShards reads what endpoints say of their rows, a line each: the shards where all are
// some and make up the whole, ErrStream where they don't, nothing where one says nothing.
func FuzzShards(f *testing.F) {
	for _, lines := range []string{
		`{"id":"a","first":0,"rows":2,"total":3}` + "\n" + `{"id":"a","first":2,"rows":1,"total":3}`,
		`{"id":"a","first":0,"rows":3,"total":3}`, `{"ID":"a","FIRST":0,"Rows":3,"total":3}`, `{"id":"a","first":0,"rows":1,"rows":3,"total":3}`,
		`{"id":null,"first":null,"rows":3,"total":3}`, `null`, `{}`, `{"id":"a","first":9223372036854775807,"rows":9223372036854775807,"total":3}`,
		`{"id":"a","first":0,"rows":3,"total":3,"more":{"id":[1,"id",{"id":2}]}}`, `{"id":"a","first":0.0,"rows":3e0,"total":3}`, `{"id":"a","first":0,"rows":3,"total":3}}`, "",
	} {
		f.Add([]byte(lines), int64(3))
	}
	f.Fuzz(func(t *testing.T, lines []byte, total int64) {
		if len(lines) > 1<<13 { // encoding/json bounds the depth of objects
			return
		}
		info := &flight.FlightInfo{TotalRecords: total}
		var want []Shard
		all, fit, next := true, true, 0
		for line := range bytes.SplitSeq(lines, []byte("\n")) {
			info.Endpoint = append(info.Endpoint, &flight.FlightEndpoint{AppMetadata: line})
			s, ok := shardSaid(line)
			got, isShard := parseShard(line)
			if ok != isShard || ok && got != s {
				t.Fatalf("%s: %v, %v; want %v, %v", line, got, isShard, s, ok)
			}
			if !all || !ok {
				all = false
				continue
			}
			fit = fit && s.First == next && int64(s.Total) == total
			next += s.Rows // at most the total where it fits
			want = append(want, s)
		}
		got, err := shardsOf(info)
		switch {
		case err != nil:
			if code(err) != codes.InvalidArgument || fit && (!all || int64(next) == total) {
				t.Fatalf("%s: %v", lines, err)
			}
		case got == nil:
			if all {
				t.Fatalf("%s: nothing", lines)
			}
		case !all || !fit || int64(next) != total || !slices.Equal(got, want):
			t.Fatalf("%s: %v", lines, got)
		}
	})
}

// FuzzAssemble puts shards together that servers say they have, six bytes each: what it
// describes are rows of one put, in order and each once, at servers that have them under
// that name; what is missing is what nobody has.
func FuzzAssemble(f *testing.F) {
	f.Add([]byte{0, 0, 5, 10, 0, 0, 0, 5, 5, 10, 1, 1})
	f.Add([]byte{0, 0, 5, 10, 0, 0, 0, 0, 5, 10, 1, 0, 0, 5, 5, 10, 1, 1, 1, 0, 3, 3, 2, 0})
	f.Add([]byte{0, 0, 5, 10, 0, 0, 0, 3, 5, 10, 1, 0, 0, 0, 0, 10, 2, 2})
	f.Add([]byte{0, 0, 0, 0, 0, 0})
	f.Add([]byte{})
	clients := []*Client{{location: Location{"grpc+unix", "/a"}}, {location: Location{"grpc+unix", "/b"}}, {location: Location{"grpc+tcp", "c:1"}}}
	f.Fuzz(func(t *testing.T, input []byte) {
		type piece struct{ location, ticket string }
		have := map[Shard]map[piece]bool{}
		var shards []found
		for ; len(input) >= 6 && len(shards) < 16; input = input[6:] {
			s := Shard{ID: string('a' + rune(input[0]%2)), First: int(input[1] % 16), Rows: int(input[2] % 16), Total: int(input[3] % 32)}
			if s.First > s.Total-s.Rows { // of which parseShard lets none through
				continue
			}
			c, ticket := clients[input[4]%3], fmt.Sprint("x@", input[5]%4)
			shards = append(shards, found{s, &flight.FlightInfo{TotalRecords: int64(s.Rows), Endpoint: []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: []byte(ticket)}}}}, c})
			if have[s] == nil {
				have[s] = map[piece]bool{}
			}
			have[s][piece{c.location.String(), ticket}] = true
		}
		info, err := assemble("x", slices.Clone(shards), nil)
		var missing *ShardError
		switch {
		case err == nil:
		case len(shards) == 0:
			require.ErrorIs(t, err, ErrNotFound)
			return
		default:
			require.ErrorAs(t, err, &missing)
			require.NotEmpty(t, missing.Missing)
		}
		// Of a put whose shards are the same or apart it is known which rows there are.
		whole := false
		for s := range have {
			rows, apart := make([]int, s.Total), true
			for other := range have {
				if other.ID == s.ID && other.Total == s.Total {
					for i := range other.Rows {
						rows[other.First+i]++
					}
				}
			}
			for _, n := range rows {
				apart = apart && n <= 1
			}
			whole = whole || apart && !slices.Contains(rows, 0)
		}
		if err != nil {
			require.False(t, whole, "%v of %v", err, shards)
			end := 0
			for _, m := range missing.Missing {
				require.True(t, m.First >= end && m.Rows > 0 && m.First+m.Rows <= m.Total, missing.Missing)
				end = m.First + m.Rows
			}
			return
		}
		said, err := shardsOf(info)
		require.NoError(t, err)
		require.True(t, said != nil || info.TotalRecords == 0)
		for i, s := range said {
			require.Equal(t, said[0].ID, s.ID)
			locations := info.GetEndpoint()[i].GetLocation()
			require.NotEmpty(t, locations)
			for _, l := range locations {
				require.True(t, have[s][piece{l.GetUri(), string(info.GetEndpoint()[i].GetTicket().GetTicket())}], "%v at %v", s, l)
			}
		}
	})
}

// firstMessage is the first message of a put, as a server takes it.
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

// putting is a call whose messages are read elsewhere.
type putting struct {
	flight.FlightService_DoPutServer
	ctx context.Context
}

func (p putting) Context() context.Context { return p.ctx }

// FuzzFirstMessage reads a descriptor and a schema of any bytes: a name that a tensor can
// have, a number of rows within the bound, and else an error with its code; no memory yet.
func FuzzFirstMessage(f *testing.F) {
	typ, err := usmarrow.NewTensorType(arrow.PrimitiveTypes.Float32, []int{2}, usmarrow.TensorOptions{})
	require.NoError(f, err)
	for _, name := range []string{"x", "a b", " a", "a/b", "é", "\x80", "", "\u202e", strings.Repeat("x", MaxName), strings.Repeat("é", MaxName)} {
		for _, rows := range []string{"3", "-1", "1048577", "99999999999999999999", "+3", "x"} {
			d, err := proto.Marshal(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}})
			if err != nil { // of a name that is no UTF-8
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
		named := proto.Unmarshal(descriptor, want) == nil && want.GetType() == flight.DescriptorPATH && len(want.GetPath()) == 1
		if named {
			name := want.GetPath()[0]
			spaces := strings.TrimFunc(name, unicode.IsSpace) != name
			named = len(name) > 0 && len(name) <= 128 && utf8.ValidString(name) && !spaces
			for _, r := range name {
				named = named && r != '/' && (r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r))
			}
		}
		if err != nil {
			var own *codec.WireError
			require.True(t, errors.As(err, &own) || code(err) == codes.InvalidArgument || code(err) == codes.ResourceExhausted, "%v", err)
			require.False(t, named && len(descriptor)+len(header) < 2000, "%q: %v", descriptor, err)
			return
		}
		require.True(t, named, "%q", m.name)
		require.Equal(t, want.GetPath()[0], m.name)
		b, err := s.begin(putting{ctx: t.Context()}, &m.data)
		require.Zero(t, pool.Stats().RequestedBytes.Current)
		if err != nil {
			require.Contains(t, []codes.Code{codes.InvalidArgument, codes.ResourceExhausted}, code(err))
			return
		}
		require.GreaterOrEqual(t, b.want, -1)
		require.LessOrEqual(t, int64(b.want)*int64(b.tensor.width), s.o.MaxTensor)
		said, known := b.tensor.schema.Metadata().GetValue(RowsKey)
		require.Equal(t, known, b.want >= 0)
		if known {
			n, whole := new(big.Int).SetString(said, 10)
			require.True(t, whole && n.IsInt64() && n.Int64() == int64(b.want), said)
		}
	})
}

// FuzzLocation reads addresses that servers name: what is one is read again as the same,
// and a token goes nowhere where others could read it.
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
		again, err := ParseLocation(l.String())
		require.NoError(t, err)
		require.Equal(t, l, again)
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
