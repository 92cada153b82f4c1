//go:build linux

package share_test

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// footprint is what must not grow: the Go heap and owner cells in bytes, mappings of any kind, and open
// files.
type footprint struct {
	heap, cells     uint64
	maps, files, of int
}

func measure(t *testing.T) (f footprint) {
	runtime.GC()
	runtime.GC() // what pools of the runtime's keep goes at the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	ours, err := mappings()
	require.NoError(t, err)
	return footprint{m.HeapAlloc, owner.Bytes(), strings.Count(string(text), "\n"), descriptors(t), ours}
}

// A hundred thousand openings (with USMBRIDGE_HUNT a million) leave nothing.
func TestOpenCloseIsFlat(t *testing.T) {
	n := 100_000
	if os.Getenv("USMBRIDGE_HUNT") != "" {
		n = 1_000_000
	}
	const at = 4 // goroutines that do it
	pool := newPool(t, segment.PeersWrite)
	s := listen(t, share.Options{})
	publish(t, s, pool, "a", 1000)
	p := dial(t, s, share.Options{})
	ctx := t.Context()
	some := func(n int) {
		var group sync.WaitGroup
		for range at {
			group.Go(func() {
				for range n / at {
					a, err := p.Attach(ctx, "a")
					if err != nil {
						t.Error(err)
						return
					}
					a.Release()
				}
			})
		}
		group.Wait()
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
	// What is not ours is bounded by the work, not counted to the last: a thread that the runtime starts, a
	// heap that grows and the race detector's shadow of it each map something. One mapping or file left for
	// each hundred openings would show.
	require.Less(t, after.maps, before.maps+n/100)
	require.Less(t, after.files, before.files+n/1000)
}
