package pin

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// In the fast form nobody shares a pinned number; in the portable one the number
// is a hint and only has to be one.
func TestPinExcludesOthers(t *testing.T) {
	Register()
	var mu sync.Mutex
	counts := make([]int, 1<<16)
	turns := make([]uint32, 1<<16)
	var wg sync.WaitGroup
	const goroutines, rounds = 8, 20000
	for range goroutines {
		wg.Go(func() {
			for range rounds {
				if !Fast {
					mu.Lock()
				}
				id := Pin()
				Acquire(&turns[id])
				counts[id]++
				Release(&turns[id])
				Unpin()
				if !Fast {
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for id, n := range counts {
		sum += n
		if Fast && n > 0 {
			require.Less(t, id, runtime.GOMAXPROCS(0))
		}
	}
	require.Equal(t, goroutines*rounds, sum)
	Barrier()
}
