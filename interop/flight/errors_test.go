package flight

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// named keeps the kind of an inner error, and errors.Is and the gRPC status report the kind.
func TestErrorShape(t *testing.T) {
	err := named("DoPut", "x", named("Store.Put", "", kindErr(ErrLimit, "rows: %d, at most %d", 3, 2)))
	require.EqualError(t, err, `flight: DoPut of "x": limit reached: rows: 3, at most 2`)
	require.ErrorIs(t, err, ErrLimit)
	e := testenv.As[*Error](t, err)
	require.Equal(t, ErrLimit, e.Kind)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))

	cause := errors.New("cause")
	err = named("Dial", "", fmt.Errorf("text: %w", cause))
	require.EqualError(t, err, "flight: Dial: text: cause")
	require.ErrorIs(t, err, cause)
	require.Equal(t, codes.Internal, status.Code(err))
	require.Equal(t, codes.Unavailable, status.Code(named("Get", "x", status.Error(codes.Unavailable, "gone"))))
}
