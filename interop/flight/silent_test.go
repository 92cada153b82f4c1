package flight

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/usmarray"
)

// A call whose request message does not arrive ends after the stall time.
func TestSilentCalls(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) {
		o.Limits.MaxStreams, o.Stall = 1, 300*time.Millisecond
		o.Actions = map[string]ActionFunc{"echo": func(_ context.Context, body []byte) ([]byte, error) { return body, nil }}
	})
	for _, method := range []string{"DoGet", "ListFlights", "DoAction", "ListActions"} {
		s := testenv.Must(b.client.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/arrow.flight.protocol.FlightService/"+method))(t)
		require.Error(t, s.RecvMsg(new(flight.Result)), method) // the header was sent, but no message
		require.Eventually(t, func() bool { return b.server.Stats().Streams == 0 }, 30*time.Second, time.Millisecond, method)
	}
	require.Eventually(t, func() bool { // on a busy machine this message can arrive too late, too
		text, err := b.client.Action(t.Context(), "echo", []byte("this"))
		return err == nil && string(text) == "this"
	}, time.Minute, time.Millisecond)
}

// A call without a valid token is refused before its request arrives. The request of a unary call must
// arrive within the stall time.
func TestMissingRequests(t *testing.T) {
	for _, tokens := range [][]string{{"secret"}, nil} {
		b := newTestbed(t, func(o *ServerOptions) { o.Tokens, o.Stall = tokens, 300*time.Millisecond })
		for _, method := range []string{"GetFlightInfo", "GetSchema", "ListFlights"} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			s := testenv.Must(b.client.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/arrow.flight.protocol.FlightService/"+method))(t)
			err := s.RecvMsg(new(flight.Result))
			require.NoError(t, ctx.Err(), "the server ends the call: %s", method)
			if tokens != nil {
				require.Equal(t, codes.Unauthenticated, status.Code(err), method)
			}
			require.Error(t, err, method)
			cancel()
		}
	}
}

// A list that the client does not read ends after the stall time and releases its resources.
func TestListThatIsNotRead(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) { o.Stall = 300 * time.Millisecond })
	a := numbers(t, b.mine, 1)
	for i := range 10000 {
		require.NoError(t, b.server.Store().Put(fmt.Sprintf("%06d%s", i, strings.Repeat("x", MaxName-6)), a))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := testenv.Must(b.client.rpc.ListFlights(ctx, &flight.Criteria{}))(t)
	require.NoError(t, testenv.ErrorOf(s.Recv()))
	require.Eventually(t, func() bool { return b.server.Stats().Streams == 0 }, 30*time.Second, time.Millisecond)
	require.Len(t, testenv.Must(b.client.List(t.Context(), ""))(t), 10000)
}

// A get in many small messages counts as progress, although small messages have no leases.
func TestManySmallMessages(t *testing.T) {
	b := newTestbed(t, func(o *ServerOptions) { o.Stall = time.Second })
	a := numbers(t, b.mine, 1<<19)
	require.NoError(t, b.client.Put(t.Context(), "x", a))
	small := dial(t, b.at.String(), ClientOptions{Batch: 4})
	var got *usmarray.Array
	require.Eventually(t, func() bool { // on a busy machine nothing may move for a second
		var err error
		got, err = small.Get(t.Context(), "x", b.mine)
		return err == nil
	}, 5*time.Minute, time.Millisecond)
	sameCopy(t, a, got)
}

// Close returns after all calls have ended, including actions of the service.
func TestCloseWaitsForCalls(t *testing.T) {
	pool := newPool(t)
	began, ended := make(chan struct{}), make(chan error, 1)
	var s *Server
	o := ServerOptions{Memory: pool, Actions: map[string]ActionFunc{"keep": func(ctx context.Context, _ []byte) ([]byte, error) {
		a, err := usmarray.FromSlice(pool, []float32{1, 2, 3}, []int{3})
		if err != nil {
			return nil, err
		}
		defer a.Release()
		close(began)
		<-ctx.Done()
		time.Sleep(200 * time.Millisecond)
		ended <- s.Store().Put("kept", a)
		return nil, nil
	}}}
	s, at := serve(t, o, Location{"grpc+unix", filepath.Join(t.TempDir(), "s")})
	c := dial(t, at.String(), ClientOptions{})
	go func() { _, _ = c.Action(context.Background(), "keep", nil) }()
	<-began
	s.Close()
	require.Len(t, ended, 1, "the action is not over")
	require.Zero(t, pool.Stats().Allocation.Current)
}
