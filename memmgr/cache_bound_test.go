package memmgr_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// churn lets goroutines allocate, exchange and release blocks of many classes until end is called,
// which releases all blocks.
func churn(t *testing.T, p *memmgr.Pool, goroutines int) (end func()) {
	var stop atomic.Bool
	var done sync.WaitGroup
	handover := make(chan memmgr.Buffer, 64)
	for g := range goroutines {
		done.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 9))
			held := make([]memmgr.Buffer, 0, 64)
			for !stop.Load() {
				runtime.Gosched() // else each look of the test waits for a turn of all goroutines
				if len(held) == cap(held) || len(held) > 0 && rng.IntN(2) == 0 {
					b := held[len(held)-1]
					held = held[:len(held)-1]
					select {
					case handover <- b:
					default:
						b.Release()
					}
					continue
				}
				b, err := memmgr.New(p, memmgr.Request{Size: uintptr(1 + rng.IntN(1<<rng.IntN(22)))})
				if err != nil {
					t.Error(err)
					return
				}
				held = append(held, b)
				select {
				case b := <-handover:
					b.Release()
				default:
				}
			}
			releaseAll(held)
		})
	}
	return func() {
		stop.Store(true)
		done.Wait()
		close(handover)
		for b := range handover {
			b.Release()
		}
	}
}

// The bound holds while many goroutines use many classes, except for one block per processor.
func TestCacheBoundHoldsUnderLoad(t *testing.T) {
	const inHand = 2 << 20 // the largest class
	for _, procs := range []int{1, 2, 8} {
		for _, bound := range []int64{0, 8 << 20} {
			before := runtime.GOMAXPROCS(procs)
			_, p := simulatedPool(t, memmgr.WithCache(bound))
			end := churn(t, p, 8)
			most := int64(0)
			for range 200 {
				most = max(most, p.Stats().CachedBytes)
				runtime.Gosched()
			}
			end()
			runtime.GOMAXPROCS(before)
			require.LessOrEqual(t, most, bound+int64(procs)*inHand, "%d processors, a bound of %d", procs, bound)
			require.LessOrEqual(t, p.Stats().CachedBytes, bound+int64(procs)*inHand)
			if bound == 0 {
				require.Zero(t, p.Stats().CachedBytes, "nothing is cached while no block is in use")
			}
			p.Trim(0)
			require.Zero(t, p.Stats().CachedBytes)
			require.Equal(t, bound, p.BudgetLeft(), "bytes taken from the bound for blocks are returned")
		}
	}
}

// While a request waits, every freed block is available to any request.
func TestPressedPoolCachesNoBlock(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithDecay(0), memmgr.WithCache(1<<30))
	var all []memmgr.Block
	for i := range 1000 {
		all = append(all, mustAllocate(t, p, uintptr(1+i*1000)))
	}
	freeAll(p, all[:500])
	require.NotZero(t, p.Stats().CachedBytes)
	left := p.BudgetLeft() + p.Stats().CachedBytes
	p.Press(true)
	require.Zero(t, p.Stats().CachedBytes)
	for _, b := range all[500:] {
		p.Free(b)
		require.Zero(t, p.Stats().CachedBytes)
	}
	b := mustAllocate(t, p, 1000)
	require.Zero(t, p.Stats().CachedBytes, "none is cut out ahead of need")
	p.Free(b)
	p.Press(false)
	p.Free(mustAllocate(t, p, 1000))
	require.NotZero(t, p.Stats().CachedBytes)
	p.Trim(0)
	require.GreaterOrEqual(t, p.BudgetLeft(), left)
}
