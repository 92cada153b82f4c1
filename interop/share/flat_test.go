//go:build linux

package share_test

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
)

// footprint records the resources that must not grow: the Go heap and owner cells in bytes,
// mappings of any kind, and open files.
type footprint struct {
	heap, cells     uint64
	maps, files, of int
}

func measure(t *testing.T) (f footprint) {
	runtime.GC()
	runtime.GC() // the second collection empties sync.Pool caches
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text := testenv.Must(os.ReadFile("/proc/self/maps"))(t)
	ours := testenv.Must(mappings())(t)
	return footprint{m.HeapAlloc, owner.Bytes(), strings.Count(string(text), "\n"), descriptors(t), ours}
}

// TestOpenCloseIsFlat checks that 40,000 openings (1,000,000 with USMBRIDGE_HUNT) leave no memory,
// mapping or file behind.
func TestOpenCloseIsFlat(t *testing.T) {
	n := 40_000
	if os.Getenv("USMBRIDGE_HUNT") != "" {
		n = 1_000_000
	}
	const at = 4 // concurrent goroutines
	pool, s := serving(t, share.Options{})
	publish(t, s, pool, "a", 1000)
	p := dial(t, s, share.Options{})
	ctx := t.Context()
	some := func(n int) {
		testenv.Together(t, at, func(int) error {
			for range n / at {
				a, err := p.Attach(ctx, "a")
				if err != nil {
					return err
				}
				a.Release()
			}
			return nil
		})
		eventually(t, func() bool { return s.Stats().Leases == 0 && p.Stats().Opened == 0 }, "leases stay")
	}
	some(n / 10)
	before := measure(t)
	some(n - n/10)
	after := measure(t)
	t.Logf("%d openings: before %+v, after %+v", n, before, after)
	require.Less(t, after.heap, before.heap+1<<20)
	require.LessOrEqual(t, after.cells, before.cells+1<<16)
	require.Equal(t, before.of, after.of)
	// The bounds are loose because other parts of the process create mappings too: new threads, a
	// growing heap, and the shadow memory of the race detector. One leaked mapping or file for each
	// hundred openings would exceed them.
	require.Less(t, after.maps, before.maps+n/100)
	require.Less(t, after.files, before.files+n/1000)
}
