package engine_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestTotalSizeOverflow checks that a request is rejected if the total size of its tensors
// overflows, even without a memory limit.
func TestTotalSizeOverflow(t *testing.T) {
	e := enginetest.New(t, engine.Options{}, enginetest.Sum())
	r := testenv.Must(e.Begin(t.Context(), "sum", ""))(t)
	defer r.End()
	var in *engine.Input
	for _, name := range []string{"a", "b"} {
		var err error
		in, err = r.Input(name, "INT64", []int64{1<<59 - 1, 2}) // 16 bytes less than 2^63 each
		require.NoError(t, err)
	}
	require.Equal(t, oip.TooLarge, kindOf(t, in.Fill(func([]byte) error { t.Error("read"); return nil })))
}

// odd is a runner that returns values that no model may return.
type odd struct {
	*enginetest.Runner
	answer func() any
}

func (o *odd) Call(context.Context, string, ...any) (any, error) { return o.answer(), nil }

// TestInvalidAnswersAreReleased checks that the arrays in an invalid answer are released.
func TestInvalidAnswersAreReleased(t *testing.T) {
	var a *usmarray.Array
	runner := &odd{Runner: enginetest.NewRunner()}
	e := enginetest.With(t, runner, engine.Options{}, enginetest.Sum())
	for name, answer := range map[string]func() any{
		"array": func() any { return a },
		"list":  func() any { return []any{1, a} },
	} {
		var err error
		a = testenv.Must(usmarray.FromSlice(memmgr.Host(), []int64{1}, []int{1}))(t)
		runner.answer = answer
		r := testenv.Must(e.Begin(t.Context(), "sum", ""))(t)
		for _, input := range []string{"a", "b"} {
			in := testenv.Must(r.Input(input, "INT64", []int64{1, 2}))(t)
			require.NoError(t, in.Fill(func([]byte) error { return nil }))
		}
		_, err = r.Run()
		require.Equal(t, oip.Internal, kindOf(t, err), name)
		r.End()
		require.False(t, a.Valid(), name)
	}
}
