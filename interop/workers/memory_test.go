//go:build cgo && linux

package workers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/usmarray"
)

const memorySource = `
import usmbridge, numpy
kept = []
def make(n): return usmbridge.empty(n, dtype="uint8", device="host")
def keep(n): kept.append(make(n))
def returns(n): return numpy.zeros(n, "u1")
def two(n): return [numpy.zeros(n, "u1"), numpy.zeros(n, "u1")]
`

// TestMemory checks the bounds of Config.Memory: an array, or a result, beyond one is an error of its call only. A result
// that is too large is not copied.
func TestMemory(t *testing.T) {
	const mib = 1 << 20
	p := open(t, workers.Config{Memory: workers.Memory{Call: 8 * mib, Kept: 16 * mib, Result: 4 * mib}, Modules: []workers.Module{{Name: "memory", Source: memorySource}}})
	ctx := limited(t)
	for _, c := range []struct {
		function string
		size     int
		err      error
	}{
		{"make", 4 * mib, nil}, {"make", 9 * mib, python.MemoryError}, {"make", 1 << 40, python.MemoryError}, {"make", 4 * mib, nil},
		{"returns", 4 * mib, nil}, {"returns", 4*mib + 1, workers.ErrTooLong}, {"returns", 1 << 30, workers.ErrTooLong},
		{"two", 2 * mib, nil}, {"two", 3 * mib, workers.ErrTooLong}, {"returns", 4 * mib, nil},
	} {
		result, err := p.Call(ctx, "memory:"+c.function, c.size)
		if c.err != nil {
			require.ErrorIs(t, err, c.err, "%s(%d)", c.function, c.size)
			continue
		}
		require.NoError(t, err, "%s(%d)", c.function, c.size)
		list, ok := result.([]any)
		if !ok {
			list = []any{result}
		}
		for _, a := range list {
			a.(*usmarray.Array).Release()
		}
	}
	_, results := p.Traffic()
	require.EqualValues(t, 12*mib, results.Bytes)
	require.EqualValues(t, 2, results.Handles, "arrays of usmbridge are not copied")
	require.NoError(t, testenv.ErrorOf(p.Call(ctx, "memory:keep", 5*mib)))
	eventually(t, func() bool { return p.Workers()[0].Memory >= 5*mib }, "the memory is reported")
	require.Zero(t, p.Workers()[0].Restarts)
}
