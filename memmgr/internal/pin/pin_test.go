package pin

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// In the fast form each pinned number has one user. In the portable form the number is a hint.
func TestPinExcludesOtherGoroutines(t *testing.T) {
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
