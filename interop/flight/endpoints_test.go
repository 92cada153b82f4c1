package flight

import (
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
)

// TestEndpoints checks that Get joins the rows of several endpoints in order. Each endpoint is read from its
// first location that serves it. A wrong total number of rows is an error.
func TestEndpoints(t *testing.T) {
	mine := newPool(t)
	a := numbers(t, mine, 10, 3)
	defer a.Release()
	var clients []*Client
	for _, name := range []string{"first", "second"} {
		_, at := serve(t, ServerOptions{Memory: newPool(t)}, Location{"grpc+unix", filepath.Join(t.TempDir(), "s")})
		c := dial(t, at.String(), ClientOptions{})
		require.NoError(t, c.Put(t.Context(), name, a))
		clients = append(clients, c)
	}
	info, err := clients[0].Info(t.Context(), "first")
	require.NoError(t, err)
	info.TotalRecords, info.TotalBytes = -1, -1
	info.Endpoint = append(info.Endpoint, &flight.FlightEndpoint{
		Ticket: &flight.Ticket{Ticket: []byte("second")},
		Location: []*flight.Location{
			{Uri: "grpc+unix:///nowhere/at/all"},
			{Uri: flight.LocationReuseConnection}, // where "second" is unknown
			{Uri: clients[1].Location().String()},
		},
	})
	got, err := clients[0].fetch(t.Context(), info, mine)
	require.NoError(t, err)
	require.Equal(t, []int{20, 3}, got.Shape())
	v, err := got.At(15, 2)
	require.NoError(t, err)
	w, err := a.At(5, 2)
	require.NoError(t, err)
	require.Equal(t, w, v)
	got.Release()

	info.TotalRecords = 21
	_, err = clients[0].fetch(t.Context(), info, mine)
	require.ErrorIs(t, err, ErrStream)
	info.Schema = []byte("no schema")
	_, err = clients[0].fetch(t.Context(), info, mine)
	require.ErrorIs(t, err, ErrStream)
}

// TestLostEndpoint checks that Get reads from the second server of an endpoint if the first is unavailable. If
// all are unavailable, the error lists all locations.
func TestLostEndpoint(t *testing.T) {
	mine := newPool(t)
	a := numbers(t, mine, 30_000, 50)
	defer a.Release()
	var servers []*Server
	var locations []*flight.Location
	for range 2 {
		s, at := serve(t, ServerOptions{Memory: newPool(t)}, Location{"grpc+unix", filepath.Join(t.TempDir(), "s")})
		require.NoError(t, dial(t, at.String(), ClientOptions{}).Put(t.Context(), "x", a))
		servers, locations = append(servers, s), append(locations, &flight.Location{Uri: at.String()})
	}
	c := dial(t, locations[0].GetUri(), ClientOptions{})
	info, err := c.Info(t.Context(), "x")
	require.NoError(t, err)
	info.Endpoint[0].Location = locations
	servers[0].Close()
	got, err := c.fetch(t.Context(), info, mine)
	require.NoError(t, err)
	same(t, a, got)
	got.Release()
	servers[1].Close()
	_, err = c.fetch(t.Context(), info, mine)
	for _, l := range locations {
		require.ErrorContains(t, err, l.GetUri())
	}
}
