package flight

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// An action of the service receives the client's bytes, and its error becomes a gRPC status. It cannot
// replace a built-in action.
func TestActions(t *testing.T) {
	began, stopped := make(chan struct{}), make(chan error, 1)
	o := ServerOptions{Memory: newPool(t), Actions: map[string]ActionFunc{
		"echo": func(_ context.Context, body []byte) ([]byte, error) { return append([]byte("got "), body...), nil },
		"none": func(context.Context, []byte) ([]byte, error) { return nil, fmt.Errorf("%w: test", ErrNotFound) },
		"fail": func(context.Context, []byte) ([]byte, error) { return nil, errors.New("mine") },
		"long": func(context.Context, []byte) ([]byte, error) { return make([]byte, maxAnswer+1), nil },
		"wait": func(ctx context.Context, _ []byte) ([]byte, error) {
			close(began)
			<-ctx.Done()
			stopped <- ctx.Err()
			return nil, ctx.Err()
		},
	}}
	_, at := serve(t, o, Location{"grpc+unix", filepath.Join(t.TempDir(), "s")})
	c := dial(t, at.String(), ClientOptions{})
	for range 2 {
		require.Equal(t, "got this", string(testenv.Must(c.Action(t.Context(), "echo", []byte("this")))(t)))
	}
	for kind, want := range map[string]codes.Code{
		"none": codes.NotFound, "fail": codes.Internal, "long": codes.ResourceExhausted, "other": codes.Unimplemented,
	} {
		b, err := c.Action(t.Context(), kind, nil)
		require.Equal(t, want, status.Code(err), kind)
		require.Nil(t, b)
	}
	require.ErrorContains(t, testenv.ErrorOf(c.Action(t.Context(), "fail", nil)), "mine")
	_, err := c.Action(t.Context(), "echo", make([]byte, 2<<20))
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- testenv.ErrorOf(c.Action(ctx, "wait", nil)) }()
	<-began
	cancel()
	require.Error(t, <-asked)
	require.ErrorIs(t, <-stopped, context.Canceled)
	require.Contains(t, string(testenv.Must(c.Action(t.Context(), ActionStats, nil))(t)), `"tensors":0`)

	stream := testenv.Must(c.rpc.ListActions(t.Context(), &flight.Empty{}))(t)
	var types []string
	require.NoError(t, each(stream.Recv, func(a *flight.ActionType) { types = append(types, a.GetType()) }))
	require.Equal(t, []string{"echo", "fail", "free", "long", "none", "stats", "wait"}, types)

	for _, bad := range []map[string]ActionFunc{{ActionFree: o.Actions["echo"]}, {"mine": nil}} {
		require.ErrorContains(t, testenv.ErrorOf(NewServer(ServerOptions{Memory: newPool(t), Actions: bad})), "Actions")
	}
}
