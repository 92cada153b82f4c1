package flight

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/interop/flight/internal/jsonobject"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Shard says which rows of a tensor an endpoint has.
type Shard struct {
	ID    string `json:"id"`    // of the put; rows of different puts do not mix
	First int    `json:"first"` // row
	Rows  int    `json:"rows"`
	Total int    `json:"total"` // rows of the whole tensor
}

// parseShard reads a Shard as it is written: with all that it says, each once.
func parseShard(b []byte) (s Shard, ok bool) {
	o, err := jsonobject.Read(b)
	if err != nil {
		return s, false
	}
	if s.ID, err = jsonobject.Value[string](o, "id"); err != nil {
		return s, false
	}
	for name, n := range map[string]*int{"first": &s.First, "rows": &s.Rows, "total": &s.Total} {
		if *n, err = jsonobject.Value[int](o, name); err != nil || *n < 0 {
			return s, false
		}
	}
	return s, s.First <= s.Total-s.Rows
}

// ShardError tells which rows could not be had, and why not.
type ShardError struct {
	Name    string
	Missing []Shard // ranges of rows
	Causes  []error // of endpoints, at most one each
}

// Error names the first range and all causes.
func (e *ShardError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "flight: %q: %v", e.Name, ErrShards)
	if len(e.Missing) > 0 {
		m := e.Missing[0]
		fmt.Fprintf(&b, ": %d to %d of %d", m.First, m.First+m.Rows-1, m.Total)
	}
	if n := len(e.Missing); n > 1 {
		fmt.Fprintf(&b, " and %d more ranges", n-1)
	}
	for _, c := range e.Causes {
		fmt.Fprintf(&b, "; %v", c)
	}
	return b.String()
}

// Unwrap gives ErrShards and the causes.
func (e *ShardError) Unwrap() []error { return append([]error{ErrShards}, e.Causes...) }

// dialer finds the client of a location.
type dialer struct {
	o     ClientOptions
	mu    sync.Mutex
	known map[string]*Client
	made  []*Client
}

func (d *dialer) client(location string) (*Client, error) {
	if strings.HasPrefix(location, "arrow-flight-reuse-connection:") {
		location = ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.known[location]; ok {
		return c, nil
	}
	c, err := Dial(location, d.o)
	if err == nil {
		d.known[location] = c
		d.made = append(d.made, c)
	}
	return c, err
}

func (d *dialer) close() {
	for _, c := range d.made {
		c.Close()
	}
}

// fetch receives what a description stands for: from endpoints that say which rows they
// have in parallel, each into its place, from others one after the other.
func fetch(ctx context.Context, f *flight.FlightInfo, r memmgr.Resource, d *dialer) (*usmarray.Array, error) {
	defer d.close()
	t, err := typeOf(f)
	if err != nil {
		return nil, err
	}
	defer t.release()
	shards, err := shardsOf(f)
	if err != nil {
		return nil, err
	}
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
	if shards == nil {
		err = b.one(f.GetEndpoint(), d)
	} else {
		err = b.parallel(f.GetEndpoint(), shards, d)
	}
	if err != nil {
		return nil, err
	}
	return t.array(ctx, r)
}

// shardsOf are the rows of each endpoint, nil unless all say it and they make up the
// whole in order.
func shardsOf(f *flight.FlightInfo) ([]Shard, error) {
	var all []Shard
	next := 0
	for _, e := range f.GetEndpoint() {
		s, ok := parseShard(e.GetAppMetadata())
		if !ok {
			return nil, nil
		}
		if s.First != next || int64(s.Total) != f.GetTotalRecords() {
			return nil, malformed("endpoints whose rows do not make up the whole: %d to %d of %d after %d", s.First, s.First+s.Rows-1, s.Total, next)
		}
		next += s.Rows
		all = append(all, s)
	}
	if all != nil && int64(next) != f.GetTotalRecords() {
		return nil, malformed("endpoints with %d of %d rows", next, f.GetTotalRecords())
	}
	return all, nil
}

// one receives the endpoints one after the other.
func (b *builder) one(endpoints []*flight.FlightEndpoint, d *dialer) error {
	whole := b.want
	for i, e := range endpoints {
		last := i == len(endpoints)-1
		if len(endpoints) > 1 {
			b.want = -1
		}
		before := b.tensor.rows
		if err := b.endpoint(e, d, before); err != nil {
			return err
		}
		if last {
			b.want = whole
		}
	}
	return b.done()
}

// rewind drops the rows from one on: what an endpoint gave before it failed.
func (b *builder) rewind(rows int) {
	drop := b.tensor.rows - rows
	for i := len(b.tensor.chunks) - 1; i >= 0 && drop > 0; i-- {
		c := &b.tensor.chunks[i]
		k := min(drop, c.rows)
		c.rows -= k
		drop -= k
	}
	b.tensor.rows = rows
}

// endpoint receives one endpoint from the first of its locations that has it.
func (b *builder) endpoint(e *flight.FlightEndpoint, d *dialer, rows int) error {
	locations := []string{""}
	if len(e.GetLocation()) > 0 {
		locations = nil
		for _, l := range e.GetLocation() {
			locations = append(locations, l.GetUri())
		}
	}
	var causes []error
	for _, l := range locations {
		c, err := d.client(l)
		if err == nil {
			if err = c.receive(b.ctx, e.GetTicket(), b); err == nil {
				return nil
			}
			err = c.failed("DoGet", string(e.GetTicket().GetTicket()), err)
		}
		causes = append(causes, err)
		b.rewind(rows)
		if b.ctx.Err() != nil {
			break
		}
	}
	return errors.Join(causes...)
}

// parallel receives all endpoints at a time, each into its rows of one piece of memory.
func (b *builder) parallel(endpoints []*flight.FlightEndpoint, shards []Shard, d *dialer) error {
	t := b.tensor
	if b.want == 0 {
		return nil
	}
	whole := t.chunks[0] // fetch has reserved it
	failed := make([]error, len(shards))
	var group errgroup.Group
	group.SetLimit(32)
	for i, s := range shards {
		group.Go(func() error {
			part := *b
			part.want, part.shard = s.Rows, &s
			part.tensor = &tensor{schema: t.schema, typ: t.typ, width: t.width,
				chunks: []chunk{{buffer: whole.buffer, offset: s.First * t.width, room: s.Rows}}}
			failed[i] = part.endpoint(endpoints[i], d, 0)
			return nil
		})
	}
	_ = group.Wait()
	e := &ShardError{}
	for i, err := range failed {
		if err != nil {
			e.Missing = append(e.Missing, shards[i])
			e.Causes = append(e.Causes, err)
		}
	}
	if e.Missing != nil {
		return e
	}
	t.chunks[0].rows, t.rows = b.want, b.want
	return nil
}

// sameShard refuses rows of another put than the one that was described: the name may
// have been put again since.
func (b *builder) sameShard(schema *arrow.Schema) error {
	if b.shard == nil {
		return nil
	}
	v, _ := schema.Metadata().GetValue(ShardKey)
	if s, ok := parseShard([]byte(v)); !ok || s != *b.shard {
		return malformed("rows that are %.200q where %d to %d of put %.40q were described; get it again", v, b.shard.First, b.shard.First+b.shard.Rows-1, b.shard.ID)
	}
	return nil
}

// Cluster is several servers that share tensors by rows. Its methods may be called from
// any goroutine.
type Cluster struct {
	o       ClientOptions
	clients []*Client
}

// NewCluster makes clients of the locations, in the order in which they share.
func NewCluster(locations []string, o ClientOptions) (*Cluster, error) {
	c := &Cluster{o: o}
	for _, l := range locations {
		client, err := Dial(l, o)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.clients = append(c.clients, client)
	}
	if len(c.clients) == 0 {
		return nil, &Error{Op: "NewCluster", Err: errors.New("no locations")}
	}
	return c, nil
}

// Clients are those of the endpoints, in order.
func (c *Cluster) Clients() []*Client { return slices.Clone(c.clients) }

// Close closes the clients.
func (c *Cluster) Close() error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

func shardName(name string, i int) string { return fmt.Sprintf("%s@%d", name, i) }

// Put shares an array by rows among the endpoints: shard i, under the name NAME@i, goes
// to the endpoint i and to as many after it as copies says (1 for none besides). It is
// done when all have theirs. It is not one step for all: while it runs, or when it
// failed, some endpoints have new rows and others old ones, of which Get never mixes
// any; put again.
func (c *Cluster) Put(ctx context.Context, name string, a *usmarray.Array, copies int) error {
	shape := a.Shape()
	if len(shape) == 0 {
		return &Error{Op: "Cluster.Put", Name: name, Err: malformed("a scalar has no rows")}
	}
	n := len(c.clients)
	copies = min(max(copies, 1), n)
	id := rand.Text()
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		s := Shard{ID: id, First: shape[0] * i / n, Total: shape[0]}
		s.Rows = shape[0]*(i+1)/n - s.First
		described, err := json.Marshal(s)
		if err != nil {
			return err
		}
		rows, err := a.Index(usmarray.IndexRange(s.First, s.First+s.Rows))
		if err != nil {
			return &Error{Op: "Cluster.Put", Name: name, Err: err}
		}
		for k := range copies {
			client := c.clients[(i+k)%n]
			group.Go(func() error {
				_, err := client.put(ctx, shardName(name, i), rows, map[string]string{ShardKey: string(described)})
				return client.failed("Put", shardName(name, i), err)
			})
		}
	}
	return group.Wait()
}

// found is a shard at an endpoint.
type found struct {
	shard  Shard
	info   *flight.FlightInfo
	client *Client
}

// look asks all endpoints for their shards of a tensor, and says which did not answer.
func (c *Cluster) look(ctx context.Context, name string) (shards []found, causes []error) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, client := range c.clients {
		wait.Go(func() {
			infos, err := client.List(ctx, name+"@")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				causes = append(causes, err)
			}
			for _, f := range infos {
				s, ok := parseShard(f.GetAppMetadata())
				whole := int64(s.Rows) == f.GetTotalRecords() && len(f.GetEndpoint()) == 1 && len(f.GetFlightDescriptor().GetPath()) == 1
				if ok && whole {
					shards = append(shards, found{s, f, client})
				}
			}
		})
	}
	wait.Wait()
	return shards, causes
}

// Info describes a shared tensor: an endpoint for each shard, with the locations that
// have it and its Shard as metadata. Of several puts it is one that is there in full.
// Errors: *ShardError, and ErrNotFound when no endpoint has a shard and all answered.
func (c *Cluster) Info(ctx context.Context, name string) (*flight.FlightInfo, error) {
	if err := CheckName(name); err != nil {
		return nil, &Error{Op: "Cluster.Info", Err: err}
	}
	shards, causes := c.look(ctx, name)
	return assemble(name, shards, causes)
}

// assemble is Info of what endpoints said of their shards, whatever it is.
func assemble(name string, shards []found, causes []error) (*flight.FlightInfo, error) {
	type key struct {
		id    string
		total int
	}
	puts := map[key][]found{}
	for _, f := range shards {
		k := key{f.shard.ID, f.shard.Total}
		puts[k] = append(puts[k], f)
	}
	missing := &ShardError{Name: name, Causes: causes}
	for _, put := range puts {
		f, gaps := describe(name, put)
		if gaps == nil {
			return f, nil
		}
		if missing.Missing == nil || len(gaps) < len(missing.Missing) {
			missing.Missing = gaps
		}
	}
	if len(puts) == 0 && len(causes) == 0 {
		return nil, &Error{Op: "Cluster.Info", Name: name, Err: ErrNotFound}
	}
	return nil, missing
}

// describe puts the shards of one put together, or says which rows nobody has.
func describe(name string, put []found) (*flight.FlightInfo, []Shard) {
	slices.SortStableFunc(put, func(a, b found) int { return a.shard.First - b.shard.First })
	total := put[0].shard.Total
	whole := &flight.FlightInfo{
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}},
		Ordered:          true, TotalRecords: int64(total),
	}
	var gaps []Shard
	var last found
	next := 0
	for _, f := range put {
		s := f.shard
		ticket, at := f.info.GetEndpoint()[0].GetTicket(), &flight.Location{Uri: f.client.location.String()}
		if s.Rows == 0 {
			continue
		}
		if s.First < next {
			// A copy is the same rows under the same name; other rows that overlap are left out.
			if s == last.shard && bytes.Equal(ticket.GetTicket(), last.info.GetEndpoint()[0].GetTicket().GetTicket()) {
				e := whole.Endpoint[len(whole.Endpoint)-1]
				e.Location = append(e.Location, at)
			}
			continue
		}
		if s.First > next {
			gaps = append(gaps, Shard{First: next, Rows: s.First - next, Total: total})
		}
		meta, err := json.Marshal(s)
		if err != nil {
			continue
		}
		whole.Endpoint = append(whole.Endpoint, &flight.FlightEndpoint{Ticket: ticket, Location: []*flight.Location{at}, AppMetadata: meta})
		if n := f.info.GetTotalBytes(); n < 0 || whole.TotalBytes < 0 || n > math.MaxInt64-whole.TotalBytes {
			whole.TotalBytes = -1 // not known
		} else {
			whole.TotalBytes += n
		}
		next, last = s.First+s.Rows, f
	}
	if next < total {
		gaps = append(gaps, Shard{First: next, Rows: total - next, Total: total})
	}
	if t, err := typeOf(put[0].info); err == nil {
		whole.Schema = flight.SerializeSchema(schemaOf(t.typ, nil), memory.DefaultAllocator)
	}
	return whole, gaps
}

// Get gathers a shared tensor into memory of a resource: all shards at a time, each
// into its rows, and a shard whose endpoint fails from another that has it. Errors:
// *ShardError for rows that no endpoint gave.
func (c *Cluster) Get(ctx context.Context, name string, r memmgr.Resource) (*usmarray.Array, error) {
	f, err := c.Info(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &dialer{o: c.o, known: map[string]*Client{}}
	for _, client := range c.clients {
		d.known[client.location.String()] = client
	}
	a, err := fetch(ctx, f, r, d)
	var shard *ShardError
	if errors.As(err, &shard) {
		shard.Name = name
		return nil, shard
	}
	if err != nil {
		return nil, &Error{Op: "Cluster.Get", Name: name, Err: err}
	}
	return a, nil
}

// Free has all endpoints let go of their shards. It asks them all, whatever some say.
func (c *Cluster) Free(ctx context.Context, name string) error {
	shards, causes := c.look(ctx, name)
	for _, f := range shards {
		if err := f.client.Free(ctx, f.info.GetFlightDescriptor().GetPath()[0]); err != nil {
			causes = append(causes, err)
		}
	}
	return errors.Join(causes...)
}
