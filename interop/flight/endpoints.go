package flight

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// dialer returns a client for each location of a tensor's endpoints.
type dialer struct {
	home    *Client            // of the server that described the tensor
	clients map[string]*Client // the others, by location
}

func (d *dialer) client(location string) (*Client, error) {
	if location == "" || location == d.home.location.String() || strings.HasPrefix(location, "arrow-flight-reuse-connection:") {
		return d.home, nil
	}
	if c, ok := d.clients[location]; ok {
		return c, nil
	}
	c, err := Dial(location, d.home.o)
	if err == nil {
		d.clients[location] = c
	}
	return c, err
}

func (d *dialer) close() {
	for _, c := range d.clients {
		c.Close()
	}
}

// fetch receives the tensor that f describes into memory of r. It reads the endpoints one after the
// other. The caller releases the array.
func (c *Client) fetch(ctx context.Context, f *flight.FlightInfo, r memmgr.Resource) (*usmarray.Array, error) {
	d := &dialer{home: c, clients: map[string]*Client{}}
	defer d.close()
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
	if err := b.endpoints(f.GetEndpoint(), d); err != nil {
		return nil, err
	}
	return t.array(ctx, r)
}

// endpoints receives all endpoints in order. The last one must complete the announced number of rows.
func (b *builder) endpoints(endpoints []*flight.FlightEndpoint, d *dialer) error {
	for i, e := range endpoints {
		if err := b.endpoint(e, d, i == len(endpoints)-1); err != nil {
			return err
		}
	}
	return b.done()
}

// endpoint receives one endpoint from the first location that succeeds.
func (b *builder) endpoint(e *flight.FlightEndpoint, d *dialer, last bool) error {
	locations := e.GetLocation()
	if len(locations) == 0 {
		locations = []*flight.Location{{Uri: flight.LocationReuseConnection}}
	}
	before := b.tensor.rows
	var causes []error
	for _, l := range locations {
		c, err := d.client(l.GetUri())
		if err == nil {
			err = c.failed("DoGet", string(e.GetTicket().GetTicket()), c.receive(b.ctx, e.GetTicket(), b))
		}
		if err == nil && last {
			err = b.done()
		}
		if err == nil {
			return nil
		}
		causes = append(causes, err)
		b.truncate(before)
		if b.ctx.Err() != nil {
			break
		}
	}
	return errors.Join(causes...)
}

// truncate keeps the first rows and drops those received from an endpoint that failed.
func (b *builder) truncate(rows int) {
	drop := b.tensor.rows - rows
	for i := len(b.tensor.chunks) - 1; i >= 0 && drop > 0; i-- {
		c := &b.tensor.chunks[i]
		k := min(drop, c.rows)
		c.rows -= k
		drop -= k
	}
	b.tensor.rows = rows
}
