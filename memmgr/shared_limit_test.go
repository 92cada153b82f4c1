package memmgr_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// A request that needs memory of another pool below the same limit is served as soon as one that needs memory of
// its own pool, although the other pool uses all of it again and again: about when all blocks that are in use at
// its beginning were released, once. In virtual time.
func TestAnotherPoolBelowTheLimitGivesUpMemorySoon(t *testing.T) {
	const limit, hold = 64 << 20, time.Millisecond
	for _, c := range []struct{ busy, small, large uintptr }{ // busy are the bytes of all requests to the other pool
		{100 << 20, 256 << 10, 4 << 20}, {100 << 20, 256 << 10, 24 << 20},
		{100 << 20, 1 << 20, 4 << 20}, {100 << 20, 1 << 20, 24 << 20},
		{100 << 20, 3 << 20, 4 << 20}, {100 << 20, 3 << 20, 24 << 20},
		{48 << 20, 3 << 20, 20 << 20},
	} {
		t.Run(fmt.Sprintf("%d KiB beside %d MiB in %d KiB", c.large>>10, c.busy>>20, c.small>>10), func(t *testing.T) {
			memmgr.WithoutKeeper(func() {
				synctest.Test(t, func(t *testing.T) {
					l := memmgr.NewLimit(new(addressOnly), limit)
					a, b := memmgr.NewPool(l, memmgr.WithDecay(0)), memmgr.NewPool(l, memmgr.WithDecay(0))
					var stop atomic.Bool
					var workers sync.WaitGroup
					for g := range c.busy / c.small {
						workers.Go(func() {
							rng := rand.New(rand.NewPCG(uint64(g), 1))
							for !stop.Load() {
								x := mustWait(b, c.small)
								time.Sleep(time.Duration(rng.Int64N(int64(2 * hold))))
								x.Release()
							}
						})
					}
					time.Sleep(50 * hold)
					longest := time.Duration(0)
					for range 10 {
						from := time.Now()
						x := mustWait(a, c.large)
						longest = max(longest, time.Since(from))
						time.Sleep(hold)
						x.Release()
						time.Sleep(20 * hold)
					}
					stop.Store(true)
					workers.Wait()
					require.NoError(t, a.Close())
					require.NoError(t, b.Close())
					t.Log("longest wait: ", longest)
					require.LessOrEqual(t, longest, 5*hold)
				})
			})
		})
	}
}

// Pools that wait for each other's memory do not keep each other awake: time goes on while they wait.
func TestPoolsThatWaitForEachOtherSleep(t *testing.T) {
	memmgr.WithoutKeeper(func() {
		synctest.Test(t, func(t *testing.T) {
			l := memmgr.NewLimit(new(addressOnly), 32<<20)
			pools := []*memmgr.Pool{memmgr.NewPool(l), memmgr.NewPool(l), memmgr.NewPool(l)}
			end := time.Now().Add(300 * time.Millisecond)
			var workers sync.WaitGroup
			for g := range 48 {
				workers.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(g), 2))
					for time.Now().Before(end) {
						x := mustWait(pools[rng.IntN(len(pools))], uintptr(1+rng.IntN(4096<<rng.IntN(13))))
						time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Millisecond))))
						x.Release()
					}
				})
			}
			workers.Wait()
			for _, p := range pools {
				require.NoError(t, p.Close())
			}
		})
	})
}

// A question to the upstream that ends with the context of its waiter is no refusal: the next waiter asks at once.
func TestEndedQuestionIsNoRefusal(t *testing.T) {
	memmgr.WithoutKeeper(func() {
		synctest.Test(t, func(t *testing.T) {
			u := &upstream{Resource: new(addressOnly)}
			u.setAsk(func(r memmgr.Request) error {
				if r.Context == nil || r.Context.Done() == nil {
					return nil
				}
				<-r.Context.Done()
				return r.Context.Err()
			})
			l := memmgr.NewLimit(u, 8<<20)
			p := newPool(t, l, memmgr.WithDecay(0))
			held, err := l.Allocate(memmgr.Request{Size: 8 << 20})
			require.NoError(t, err)
			const impatient, each = 6, 20 * time.Millisecond
			start := time.Now()
			for i := range impatient {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*each)
				defer cancel()
				request(p, ctx, 8<<20)
				synctest.Wait()
			}
			patient := request(p, context.Background(), 8<<20)
			synctest.Wait()
			l.Free(held)
			g := <-patient
			require.NoError(t, g.err)
			require.Less(t, time.Since(start), impatient*each+10*time.Millisecond)
			g.b.Release()
		})
	})
}

// mustWait allocates memory, and waits for it.
func mustWait(r memmgr.Resource, size uintptr) memmgr.Buffer {
	b, err := memmgr.New(r, memmgr.Request{Size: size, Context: context.Background()})
	must(err)
	return b
}
