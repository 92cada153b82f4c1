package flight

import (
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Device memory is sent and received through host USM on both sides, for all row sizes. Shared
// memory is used directly.
func TestUSM(t *testing.T) {
	q := testsycl.Queue(t)
	for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared} {
		pool := memmgr.NewPool(testsycl.USM(t, q, kind))
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		plain := newPool(t)
		s, at := serve(t, ServerOptions{Memory: pool}, Location{"grpc+unix", filepath.Join(t.TempDir(), "s")})
		c := dial(t, at.String(), ClientOptions{})
		for _, shape := range [][]int{{3}, {1000, 7}, {100_000, 33}, {3, 2 << 20}, {0, 4}} {
			from := numbers(t, plain, shape...)
			there := testenv.Must(from.Copy(pool))(t)
			require.NoError(t, c.Put(t.Context(), "x", there))
			there.Release()
			sameCopy(t, from, testenv.Must(c.Get(t.Context(), "x", plain))(t))
			back := testenv.Must(c.Get(t.Context(), "x", pool))(t)
			require.Equal(t, kind == syclobj.USMShared, back.Place().HostReadable())
			sameCopy(t, from, back)
			sameCopy(t, from, testenv.Must(s.Store().Get(t.Context(), "x"))(t))
			from.Release()
		}
		a := testenv.Must(usmarray.Zeros(pool, usmarray.Float32, []int{4, 4}))(t)
		require.NoError(t, s.Store().Put("own", a))
		a.Release()
		require.NoError(t, c.Free(t.Context(), "own"))
	}
}

// TestColumnsObserve fills memory that an Arrow column shows: the work ends before the call returns.
func TestColumnsObserve(t *testing.T) {
	q := testsycl.Queue(t)
	pool := memmgr.NewPool(testsycl.USM(t, q, syclobj.USMShared))
	a := testenv.Must(usmarray.Zeros(pool, usmarray.Float32, []int{1 << 20, 1}))(t)
	column := testenv.Must(usmarrow.ToArrow(a))(t)
	values := column.Storage().(*array.FixedSizeList).ListValues().(*array.Float32).Float32Values()
	for v := float32(1); v < 20; v++ {
		require.NoError(t, a.Fill(v))
		require.Equal(t, v, values[len(values)-1])
	}
	observed := func() bool { return cells.Of(a.Buffer()).Observed() }
	require.True(t, observed())
	column.Release()
	require.False(t, observed())
	a.Release()
	require.NoError(t, pool.Close())
}
