package flight

import (
	"context"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) { testsycl.Main(m) }

// testbed is a server and a client, each with its own pool.
type testbed struct {
	server *Server
	at     Location
	pool   *memmgr.Pool // the server's
	mine   *memmgr.Pool // the client's
	client *Client
}

func newPool(t *testing.T, options ...memmgr.PoolOption) *memmgr.Pool {
	t.Helper()
	p := memmgr.NewPool(memmgr.Host(), options...)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// newTestbed starts a server on a Unix socket and a client. The test fails if either holds memory
// at the end.
func newTestbed(t *testing.T, change func(*ServerOptions)) *testbed {
	t.Helper()
	b := &testbed{mine: newPool(t)}
	o := ServerOptions{}
	if change != nil {
		change(&o)
	}
	if o.Memory == nil {
		o.Memory = newPool(t)
	}
	b.pool, _ = o.Memory.(*memmgr.Pool)
	b.server, b.at = serve(t, o, Location{"grpc+unix", filepath.Join(t.TempDir(), "s")})
	b.client = dial(t, b.at.String(), ClientOptions{})
	return b
}

func serve(t *testing.T, o ServerOptions, at Location) (*Server, Location) {
	t.Helper()
	s := testenv.Must(NewServer(o))(t)
	l, at, err := s.Listen(at)
	require.NoError(t, err)
	var wait sync.WaitGroup
	wait.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Close()
		wait.Wait()
		waitReleased(t)
		// A call is unregistered after its handler returns.
		require.Eventually(t, func() bool { return s.gate.Streams() == 0 && s.gate.InFlight() == 0 }, time.Minute, time.Millisecond)
	})
	return s, at
}

func dial(t *testing.T, location string, o ClientOptions) *Client {
	t.Helper()
	c := testenv.Must(Dial(location, o))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// waitReleased waits until gRPC holds no buffers. Buffers of a killed client are released within
// seconds, later on a machine under load.
func waitReleased(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { n, _ := codec.Outstanding(); return n == 0 }, time.Minute, time.Millisecond)
}

func numbers(t *testing.T, r memmgr.Resource, shape ...int) *usmarray.Array {
	t.Helper()
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i%100_003) * 0.5
	}
	return testenv.Held(usmarray.FromSlice(r, data, shape))(t)
}

func same(t *testing.T, want, got *usmarray.Array) {
	t.Helper()
	require.Equal(t, want.Shape(), got.Shape())
	require.Equal(t, want.DataType(), got.DataType())
	w := testenv.Must(usmarray.ToSlice[float32](want))(t)
	require.True(t, slices.Equal(w, testenv.Must(usmarray.ToSlice[float32](got))(t)), "elements differ")
}

// sameCopy is same for a copy that is released then.
func sameCopy(t *testing.T, want, got *usmarray.Array) {
	t.Helper()
	same(t, want, got)
	got.Release()
}

// A client and the server's own process read a tensor as it was put.
func TestPutAndGet(t *testing.T) {
	b := newTestbed(t, nil)
	for i, shape := range [][]int{{1}, {5}, {0}, {0, 3}, {3, 1}, {480, 640, 3}, {2, 3, 4, 5}, {1 << 20, 5}, {1, 3 << 20}} {
		name := fmt.Sprintf("t%d", i)
		a := numbers(t, b.mine, shape...)
		require.NoError(t, b.client.Put(t.Context(), name, a))
		got := testenv.Must(b.client.Get(t.Context(), name, b.mine))(t)
		same(t, a, got)
		require.Zero(t, got.Buffer().Address()%256)
		got.Release()
		sameCopy(t, a, testenv.Must(b.server.Store().Get(t.Context(), name))(t))
		a.Release()
	}
	require.Len(t, testenv.Must(b.client.List(t.Context(), ""))(t), 9)
	some := testenv.Must(b.client.List(t.Context(), "t5"))(t)
	require.Len(t, some, 1)
	require.EqualValues(t, 480, some[0].GetTotalRecords())
	require.EqualValues(t, 480*640*3*4, some[0].GetTotalBytes())
	stats := testenv.Must(b.client.Stats(t.Context()))(t)
	require.Equal(t, 9, stats.Tensors)
	require.Positive(t, stats.Memory["requested_bytes.all.current"])
	for i := range 9 {
		require.NoError(t, b.client.Free(t.Context(), fmt.Sprintf("t%d", i)))
	}
	require.Equal(t, codes.NotFound, status.Code(b.client.Free(t.Context(), "t0")))
	waitReleased(t)
	require.Eventually(t, func() bool { return b.pool.Stats().RequestedBytes.Current == 0 }, time.Minute, time.Millisecond)
}

// Views with dense rows are sent without reordering and arrive with a permutation.
func TestViews(t *testing.T) {
	b := newTestbed(t, nil)
	a := numbers(t, b.mine, 6, 4, 5, 3)
	turned := testenv.Must(a.Transpose(0, 3, 1, 2))(t)
	part := testenv.Must(turned.Index(usmarray.IndexRange(1, 4)))(t)
	require.NoError(t, b.client.Put(t.Context(), "part", part))
	got := testenv.Held(b.client.Get(t.Context(), "part", b.mine))(t)
	same(t, part, got)
	require.Equal(t, part.Strides(), got.Strides())

	every := testenv.Must(a.Index(usmarray.All.By(2)))(t)
	err := b.client.Put(t.Context(), "every", every)
	require.ErrorContains(t, err, "Copy the array first")
	waitReleased(t)
}

// An array that the server's process stores is sent from its own memory.
func TestPublish(t *testing.T) {
	b := newTestbed(t, nil)
	a := numbers(t, b.pool, 100, 1000)
	require.NoError(t, b.server.Store().Put("own", a))
	require.Equal(t, 2, a.Buffer().Count())
	sameCopy(t, a, testenv.Must(b.client.Get(t.Context(), "own", b.mine))(t))
	local := testenv.Must(b.server.Store().Get(t.Context(), "own"))(t)
	require.Equal(t, a.Pointer(), local.Pointer())
	local.Release()
	require.NoError(t, b.server.Store().Free("own"))
	require.Eventually(t, func() bool { return a.Buffer().Count() == 1 }, time.Minute, time.Millisecond)
	a.Release()
	for _, name := range []string{"", "a/b", " a", "a\x00", "\xff", string(make([]byte, 200))} {
		require.ErrorIs(t, b.server.Store().Put(name, nil), ErrName)
	}
}

// A running get sends the tensor that was stored when the get began.
func TestReplaceDuringGet(t *testing.T) {
	b := newTestbed(t, nil)
	old := numbers(t, b.mine, 4<<20)
	require.NoError(t, b.client.Put(t.Context(), "x", old))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 5 {
				got, err := b.client.Get(context.Background(), "x", b.mine)
				if err == nil {
					defer got.Release()
				}
			}
		})
		wait.Go(func() {
			for range 3 {
				_ = b.client.Put(context.Background(), "x", old)
			}
		})
	}
	wait.Wait()
	sameCopy(t, old, testenv.Must(b.client.Get(t.Context(), "x", b.mine))(t))
}

// Socket paths are used literally, even with characters that have a meaning in a URL.
func TestPathsThatLookLikeURLs(t *testing.T) {
	for _, name := range []string{"a?b", "a#b", "a%41", "a b", "%zz", "a:b@c"} {
		_, at := serve(t, ServerOptions{Memory: newPool(t)}, Location{"grpc+unix", filepath.Join(t.TempDir(), name)})
		require.Equal(t, codes.NotFound, status.Code(dial(t, at.String(), ClientOptions{}).Free(t.Context(), "nothing")), name)
	}
}

func TestLocations(t *testing.T) {
	for _, s := range []string{"grpc+tcp://127.0.0.1:0", "grpc+tls://host:1", "grpc+unix:///tmp/x"} {
		require.Equal(t, s, testenv.Must(ParseLocation(s))(t).String())
	}
	require.Equal(t, "grpc+tcp://[::1]:9", testenv.Must(ParseLocation("grpc://[::1]:9/"))(t).String())
	for _, s := range []string{"", "host:1", "http://host:1", "grpc+tcp://host", "grpc+unix://relative", "grpc+unix:", "grpc+tcp:///x"} {
		require.Error(t, testenv.ErrorOf(ParseLocation(s)), s)
	}
	require.True(t, Location{"grpc+tcp", "127.0.0.2:1"}.private())
	require.True(t, Location{"grpc+tcp", "[::1]:1"}.private())
	require.True(t, Location{"grpc+tcp", "localhost:1"}.private())
	require.False(t, Location{"grpc+tcp", ":1"}.private())
	require.False(t, Location{"grpc+tcp", "0.0.0.0:1"}.private())
	require.False(t, Location{"grpc+tcp", "10.0.0.1:1"}.private())
	require.True(t, Location{"grpc+tls", "10.0.0.1:1"}.private())
	require.False(t, Location{"grpc+tls", "10.0.0.1:1"}.Local())
	require.True(t, Location{"grpc+tls", "127.0.0.1:1"}.Local())

	path := filepath.Join(t.TempDir(), "left")
	left := testenv.Must(net.Listen("unix", path))(t)
	_, err := Location{"grpc+unix", path}.Listen()
	require.Error(t, err, "the path of an active listener")
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	again := testenv.Must(Location{"grpc+unix", path}.Listen())(t)
	again.Close()
}

// Get refuses descriptions of other servers that do not fit the tensor, and those with several endpoints.
func TestInvalidDescriptions(t *testing.T) {
	b := newTestbed(t, nil)
	a := numbers(t, b.mine, 10, 3)
	require.NoError(t, b.client.Put(t.Context(), "x", a))
	for _, change := range []func(*flight.FlightInfo){
		func(f *flight.FlightInfo) { f.TotalRecords = 11 },
		func(f *flight.FlightInfo) { f.TotalRecords = 9 },
		func(f *flight.FlightInfo) { f.TotalRecords = math.MaxInt64 },
		func(f *flight.FlightInfo) { f.Schema = []byte("no schema") },
		func(f *flight.FlightInfo) { f.Endpoint = nil },
		func(f *flight.FlightInfo) { f.Endpoint = append(f.Endpoint, f.Endpoint...) },
	} {
		f := testenv.Must(b.client.Info(t.Context(), "x"))(t)
		change(f)
		require.ErrorIs(t, testenv.ErrorOf(b.client.fetch(t.Context(), f, b.mine)), ErrStream)
	}
	f := testenv.Must(b.client.Info(t.Context(), "x"))(t)
	f.TotalRecords = -1
	sameCopy(t, a, testenv.Must(b.client.fetch(t.Context(), f, b.mine))(t))
}
