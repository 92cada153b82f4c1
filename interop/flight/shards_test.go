package flight

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/usmarray"
)

// newCluster serves at n sockets.
func newCluster(t *testing.T, n int) (*Cluster, []*Server) {
	t.Helper()
	var servers []*Server
	var locations []string
	for range n {
		s, at := serve(t, ServerOptions{Memory: newPool(t)}, Location{"grpc+unix", filepath.Join(t.TempDir(), "s")})
		servers, locations = append(servers, s), append(locations, at.String())
	}
	c, err := NewCluster(locations, ClientOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, servers
}

// Rows are shared among the endpoints and gathered into one array; Flight's own
// description says where they are, and one client follows it.
func TestShards(t *testing.T) {
	mine := newPool(t)
	c, servers := newCluster(t, 3)
	for _, rows := range []int{10_000, 7, 3, 2, 1, 0} {
		a := numbers(t, mine, rows, 50)
		require.NoError(t, c.Put(t.Context(), "x", a, 1))
		got, err := c.Get(t.Context(), "x", mine)
		require.NoError(t, err)
		same(t, a, got)
		got.Release()
		info, err := c.Info(t.Context(), "x")
		require.NoError(t, err)
		require.Len(t, info.Endpoint, min(rows, 3))
		require.EqualValues(t, rows, info.TotalRecords)
		require.EqualValues(t, rows*200, info.TotalBytes)
		a.Release()
	}
	for i, s := range servers {
		require.Equal(t, []string{shardName("x", i)}, s.Store().Names(""))
	}
	require.NoError(t, c.Free(t.Context(), "x"))
	_, err := c.Get(t.Context(), "x", mine)
	require.ErrorIs(t, err, ErrNotFound)
}

// A lost endpoint costs nothing where another has its rows, and is told with the rows
// where none has; neither leaves memory behind.
func TestLostEndpoint(t *testing.T) {
	mine := newPool(t)
	c, servers := newCluster(t, 3)
	a := numbers(t, mine, 30_000, 50)
	defer a.Release()
	require.NoError(t, c.Put(t.Context(), "twice", a, 2))
	require.NoError(t, c.Put(t.Context(), "once", a, 1))
	whole, err := c.Info(t.Context(), "twice")
	require.NoError(t, err)
	require.Len(t, whole.Endpoint, 3)
	for _, e := range whole.Endpoint {
		require.Len(t, e.Location, 2)
	}
	servers[1].Close()
	got, err := c.Get(t.Context(), "twice", mine)
	require.NoError(t, err)
	same(t, a, got)
	got.Release()
	// The endpoint went away after it was described: the shard comes from its copy.
	got, err = fetch(t.Context(), whole, mine, &dialer{known: map[string]*Client{}})
	require.NoError(t, err)
	same(t, a, got)
	got.Release()

	_, err = c.Get(t.Context(), "once", mine)
	require.ErrorIs(t, err, ErrShards)
	require.ErrorContains(t, err, "10000 to 19999 of 30000")
	require.ErrorContains(t, err, c.Clients()[1].Location().String())
	require.Equal(t, codes.Unavailable, status.Code(err.(*ShardError).Causes[0]))
	require.Error(t, c.Put(t.Context(), "once", a, 1), "a put needs all endpoints")
}

// Rows of different puts do not mix: where one is incomplete the other is taken, or
// none.
func TestPutsDoNotMix(t *testing.T) {
	mine := newPool(t)
	c, servers := newCluster(t, 2)
	a, b := numbers(t, mine, 100), numbers(t, mine, 100)
	defer a.Release()
	defer b.Release()
	require.NoError(t, b.Fill(float32(-1)))
	require.NoError(t, c.Put(t.Context(), "x", a, 1))
	old, err := servers[0].Store().Get(t.Context(), "x@0")
	require.NoError(t, err)
	oldTensor, err := servers[0].Store().tensor("x@0")
	require.NoError(t, err)
	old.Release()
	require.NoError(t, c.Put(t.Context(), "x", b, 1))
	require.NoError(t, servers[0].Store().commit("x@0", oldTensor))
	_, err = c.Get(t.Context(), "x", mine)
	require.ErrorIs(t, err, ErrShards)
}

// A shard that is put again after it was described is not mixed with the others.
func TestPutsDoNotMixMeanwhile(t *testing.T) {
	mine := newPool(t)
	c, servers := newCluster(t, 2)
	a, b := numbers(t, mine, 100), numbers(t, mine, 100)
	defer a.Release()
	defer b.Release()
	require.NoError(t, b.Fill(float32(-1)))
	require.NoError(t, c.Put(t.Context(), "x", a, 1))
	described, err := c.Info(t.Context(), "x")
	require.NoError(t, err)
	old, err := servers[0].Store().tensor("x@0")
	require.NoError(t, err)
	require.NoError(t, c.Put(t.Context(), "x", b, 1))
	require.NoError(t, servers[0].Store().commit("x@0", old)) // as if only the other were through
	_, err = fetch(t.Context(), described, mine, &dialer{known: map[string]*Client{}})
	require.ErrorIs(t, err, ErrShards)
	require.ErrorContains(t, err, "50 to 99 of 100")

	part, err := b.Index(usmarray.IndexRange(50, 100))
	require.NoError(t, err)
	require.NoError(t, c.Put(t.Context(), "x", a, 1))
	described, err = c.Info(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, c.Clients()[1].Put(t.Context(), "x@1", part)) // no shard at all
	_, err = fetch(t.Context(), described, mine, &dialer{known: map[string]*Client{}})
	require.ErrorIs(t, err, ErrShards)
}

// Shards of one put that differ in what the whole is, and other rows that say that they are
// a copy, make no description.
func TestShardsThatDoNotFit(t *testing.T) {
	shard := func(client, name string, first, rows, total int) found {
		return found{Shard{"put", first, rows, total}, &flight.FlightInfo{
			TotalRecords: int64(rows), Endpoint: []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: []byte(name)}}},
		}, &Client{location: Location{"grpc+unix", "/" + client}}}
	}
	f, err := assemble("x", []found{shard("a", "x@0", 0, 5, 10), shard("b", "x@1", 5, 5, 10), shard("c", "x@0", 0, 4, 10), shard("d", "x@9", 0, 5, 10), shard("e", "x@0", 0, 5, 10)}, nil)
	require.NoError(t, err)
	require.Len(t, f.GetEndpoint(), 2)
	var locations []string
	for _, l := range f.GetEndpoint()[0].GetLocation() {
		locations = append(locations, l.GetUri())
	}
	require.Equal(t, []string{"grpc+unix:///a", "grpc+unix:///e"}, locations)
	_, err = assemble("x", []found{shard("a", "x@0", 0, 5, 10), shard("b", "x@1", 5, 5, 11)}, nil)
	require.ErrorIs(t, err, ErrShards)
	_, err = assemble("x", []found{shard("a", "x@0", 0, 5, 5), shard("b", "x@1", 5, 7, 100)}, nil)
	require.NoError(t, err, "the first is whole by itself")
}

// Endpoints that say nothing of their rows come one after the other, as any Flight
// server may describe them.
func TestForeignEndpoints(t *testing.T) {
	mine := newPool(t)
	c, _ := newCluster(t, 2)
	a := numbers(t, mine, 10, 3)
	defer a.Release()
	for i, client := range c.Clients() {
		require.NoError(t, client.Put(t.Context(), []string{"first", "second"}[i], a))
	}
	info, err := c.Clients()[0].Info(t.Context(), "first")
	require.NoError(t, err)
	info.TotalRecords, info.TotalBytes = -1, -1
	info.Endpoint = append(info.Endpoint, &flight.FlightEndpoint{
		Ticket: &flight.Ticket{Ticket: []byte("second")},
		Location: []*flight.Location{
			{Uri: "grpc+unix:///nowhere/at/all"},
			{Uri: flight.LocationReuseConnection}, // where "second" is unknown
			{Uri: c.Clients()[1].Location().String()},
		},
	})
	got, err := fetch(t.Context(), info, mine, &dialer{known: map[string]*Client{"": c.Clients()[0]}})
	require.NoError(t, err)
	require.Equal(t, []int{20, 3}, got.Shape())
	v, err := got.At(15, 2)
	require.NoError(t, err)
	w, err := a.At(5, 2)
	require.NoError(t, err)
	require.Equal(t, w, v)
	got.Release()

	info.TotalRecords = 21
	_, err = fetch(t.Context(), info, mine, &dialer{known: map[string]*Client{"": c.Clients()[0]}})
	require.ErrorIs(t, err, ErrStream)
	info.Schema = []byte("no schema")
	_, err = fetch(t.Context(), info, mine, &dialer{known: map[string]*Client{"": c.Clients()[0]}})
	require.ErrorIs(t, err, ErrStream)
}

// Many clients at a time, of one cluster.
func TestTogether(t *testing.T) {
	mine := newPool(t)
	c, _ := newCluster(t, 2)
	a := numbers(t, mine, 5000, 20)
	defer a.Release()
	require.NoError(t, c.Put(t.Context(), "x", a, 2))
	var wait sync.WaitGroup
	errs := make(chan error, 100)
	for range 8 {
		wait.Go(func() {
			for range 5 {
				got, err := c.Get(t.Context(), "x", mine)
				if err != nil {
					errs <- err
					return
				}
				got.Release()
			}
		})
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}
