package flight

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// ClientOptions configure a client. The zero value is for servers without TLS and tokens.
type ClientOptions struct {
	// Token is sent with each call. Dial returns ErrInsecure if it would be sent without encryption.
	Token string
	// TLS is the configuration for grpc+tls locations; nil trusts the system's certificates.
	TLS *tls.Config
	// Batch is the number of bytes of a tensor in one message, in both directions; by default 2 MiB for
	// sending and 1 MiB for receiving, because gRPC holds a whole message.
	Batch int
	// MaxMessage bounds the bytes of a received message; 1 GiB. Servers that do not know BatchHeader may
	// send large ones.
	MaxMessage int
}

// Client calls one server. Its methods may be called from any goroutine. Each ends with its context.
type Client struct {
	o        ClientOptions
	location Location
	conn     *grpc.ClientConn
	rpc      flight.Client
}

// Dial creates a client for a location. It connects at the first call.
func Dial(location string, o ClientOptions) (*Client, error) {
	l, err := ParseLocation(location)
	if err != nil {
		return nil, err
	}
	if o.Token != "" && !l.private() {
		return nil, named("Dial", "", kindErr(ErrInsecure, "%v does not encrypt the token; use grpc+tls", l))
	}
	o.Batch = max(o.Batch, 0)
	if o.MaxMessage <= 0 {
		o.MaxMessage = codec.DefaultMaxMessage
	}
	creds := insecure.NewCredentials()
	if l.Scheme == "grpc+tls" {
		creds = credentials.NewTLS(o.TLS)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithDisableRetry(),
		grpc.WithReadBufferSize(ioBuffer), grpc.WithWriteBufferSize(ioBuffer),
		experimental.WithBufferPool(new(codec.Frames)), grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New(0)), grpc.MaxCallRecvMsgSize(o.MaxMessage))}
	target := "passthrough:///" + l.Address
	if l.Scheme == "grpc+unix" {
		target = "passthrough:///localhost" // the authority of the calls; a path would be invalid
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return widened(new(net.Dialer).DialContext(ctx, "unix", l.Address))
		}))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, named("Dial", "", err)
	}
	return &Client{o: o, location: l, conn: conn, rpc: flight.NewClientFromConn(conn, nil)}, nil
}

// Close ends all calls and closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) context(ctx context.Context) context.Context {
	if c.o.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.o.Token)
}

func (c *Client) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return named(op+" at "+c.location.String(), name, err)
}

// Put sends an array, in host or device memory, and returns when the server has stored it. If it fails,
// the server keeps the former tensor. Errors: those of usmarrow.TypeOf and of the server.
func (c *Client) Put(ctx context.Context, name string, a *usmarray.Array) error {
	return c.failed("Put", name, c.put(ctx, name, a))
}

func (c *Client) put(ctx context.Context, name string, a *usmarray.Array) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := a.Wait(); err != nil {
		return err
	}
	t, err := fromArray(a)
	if err != nil {
		return err
	}
	defer t.release()
	t.schema = schemaOf(t.typ, map[string]string{RowsKey: strconv.Itoa(t.rows)})
	st, err := stageFor(a.Place())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.context(ctx))
	defer cancel()
	var leases codec.Leases
	stream, err := c.rpc.DoPut(ctx)
	if err != nil {
		return err
	}
	out := &sender{ctx: ctx, leases: &leases, stage: st, send: stream.SendMsg}
	err = out.tensor(t, &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}}, cmp.Or(c.o.Batch, 2<<20))
	if err == nil {
		err = stream.CloseSend()
	}
	if err == nil || errors.Is(err, io.EOF) { // after io.EOF, Recv returns the server's error
		err = each(stream.Recv, func(*flight.PutResult) {})
	}
	if err != nil {
		leases.Abandon()
		return err
	}
	return leases.Wait(ctx)
}

// each calls use with each message of a stream.
func each[T any](receive func() (T, error), use func(T)) error {
	for {
		m, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		use(m)
	}
}

// Info returns the description of a tensor.
func (c *Client) Info(ctx context.Context, name string) (*flight.FlightInfo, error) {
	f, err := c.rpc.GetFlightInfo(c.context(ctx), &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}})
	return f, c.failed("GetFlightInfo", name, err)
}

// List returns the descriptions of the tensors whose names begin with a prefix.
func (c *Client) List(ctx context.Context, prefix string) (all []*flight.FlightInfo, err error) {
	stream, err := c.rpc.ListFlights(c.context(ctx), &flight.Criteria{Expression: []byte(prefix)})
	if err == nil {
		err = each(stream.Recv, func(f *flight.FlightInfo) { all = append(all, f) })
	}
	if err != nil {
		return nil, c.failed("ListFlights", "", err)
	}
	return all, nil
}

// Action calls an action of the server (ServerOptions.Actions, ActionFree, ActionStats) and returns its
// last answer, or nil.
func (c *Client) Action(ctx context.Context, kind string, body []byte) (answer []byte, err error) {
	stream, err := c.rpc.DoAction(c.context(ctx), &flight.Action{Type: kind, Body: body})
	if err == nil {
		err = each(stream.Recv, func(r *flight.Result) { answer = r.GetBody() })
	}
	if err != nil {
		return nil, c.failed("DoAction "+kind, "", err)
	}
	return answer, nil
}

// Free removes a tensor from the server.
func (c *Client) Free(ctx context.Context, name string) error {
	_, err := c.Action(ctx, ActionFree, []byte(name))
	return c.failed("free", name, err)
}

// Stats returns the server's counters.
func (c *Client) Stats(ctx context.Context) (s Stats, err error) {
	b, err := c.Action(ctx, ActionStats, nil)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, c.failed("stats", "", err)
}

// Get receives a tensor into memory of a resource. It allocates all memory before the first byte is
// received, and waits for it until ctx ends. The caller releases the array.
func (c *Client) Get(ctx context.Context, name string, r memmgr.Resource) (*usmarray.Array, error) {
	f, err := c.Info(ctx, name)
	if err != nil {
		return nil, err
	}
	a, err := c.fetch(ctx, f, r)
	return a, c.failed("Get", name, err)
}

// fetch receives the tensor that f describes into memory of r. The caller releases the array.
func (c *Client) fetch(ctx context.Context, f *flight.FlightInfo, r memmgr.Resource) (*usmarray.Array, error) {
	if n := len(f.GetEndpoint()); n != 1 {
		return nil, malformed("a tensor at %d endpoints, want one; read each with arrow-go's client", n)
	}
	schema, typ, err := streamedSchema(f.GetSchema())
	if err != nil {
		return nil, err
	}
	t := newTensor(schema, typ)
	defer t.release()
	st, err := stageFor(r.Place())
	if err != nil {
		return nil, err
	}
	b := &builder{tensor: t, from: r, ctx: ctx, wait: forever, want: -1, stage: st, limit: math.MaxInt64}
	if n := f.GetTotalRecords(); n >= 0 {
		if n > math.MaxInt64/int64(t.width) {
			return nil, malformed("%d rows of %d bytes", n, t.width)
		}
		b.want = int(n)
		if err := b.reserve(b.want); err != nil {
			return nil, err
		}
	}
	if err := c.receive(ctx, f.GetEndpoint()[0].GetTicket(), b); err != nil {
		return nil, err
	}
	if err := b.done(); err != nil {
		return nil, err
	}
	return t.array(ctx, r)
}

// forever is the wait for memory of a client whose context has no deadline.
const forever = 1000 * time.Hour

// receive receives the tensor of a ticket into a builder.
func (c *Client) receive(ctx context.Context, ticket *flight.Ticket, b *builder) error {
	ctx, cancel := context.WithCancel(c.context(metadata.AppendToOutgoingContext(ctx, BatchHeader, strconv.Itoa(cmp.Or(c.o.Batch, 1<<20)))))
	defer cancel()
	stream, err := c.rpc.DoGet(ctx, ticket)
	if err != nil {
		return err
	}
	in := &incoming{begin: func(d *data) (*builder, error) {
		_, t, plain, err := parseSchema(d.header)
		b.plain = plain
		if err == nil && !t.ExtensionEquals(b.tensor.typ) {
			err = malformed("tensors of type %v, but %v was announced", t, b.tensor.typ)
		}
		return b, err
	}}
	for err == nil {
		err = stream.RecvMsg(in)
	}
	switch {
	case in.err != nil:
		return in.err
	case errors.Is(err, io.EOF):
		return in.end()
	default:
		return err
	}
}
