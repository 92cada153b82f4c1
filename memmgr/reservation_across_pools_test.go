package memmgr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// sharing returns resources with a bound of bytes that pools share, by name.
func sharing(bound uint64) map[string]memmgr.Resource {
	return map[string]memmgr.Resource{
		"limit":  memmgr.NewLimit(memtest.NewSimulated(), bound),
		"device": memtest.NewSimulated(memtest.Capacity(bound)),
	}
}

func threePools(t testing.TB, shared memmgr.Resource, options ...memmgr.PoolOption) (pools []*memmgr.Pool, end func()) {
	for range 3 {
		pools = append(pools, memmgr.NewPool(shared, options...))
	}
	return pools, func() {
		for _, p := range pools {
			require.NoError(t, p.Close())
		}
	}
}

// A request that needs memory of other pools is served although these reuse all memory that is released to
// them.
func TestPoolsThatShareReserveForEachOther(t *testing.T) {
	for name, shared := range sharing(32 << 20) {
		t.Run(name, func(t *testing.T) {
			pools, end := threePools(t, shared)
			defer end()
			for _, p := range pools[1:] {
				rounds, stop := keepBusy(t, p, 40, 1<<20)
				defer stop()
				require.Eventually(t, func() bool { return rounds.Load() > 100 }, patience, time.Millisecond)
			}
			for _, size := range []uintptr{12 << 20, 24 << 20, 31 << 20} {
				served(t, request(pools[0], context.Background(), size)).Release()
			}
		})
	}
}

// Two pools repeatedly request everything that they share. Neither starves, and small requests of a third
// pool are served.
func TestPoolsThatRequestEverythingTakeTurns(t *testing.T) {
	for name, shared := range sharing(32 << 20) {
		t.Run(name, func(t *testing.T) {
			pools, end := threePools(t, shared)
			defer end()
			var all []func()
			for i, p := range pools {
				size, n := uintptr(24<<20), 2
				if i == 2 {
					size, n = 1<<20, 8
				}
				rounds, stop := keepBusy(t, p, n, size)
				all = append(all, func() {
					from := rounds.Load()
					require.Eventually(t, func() bool { return rounds.Load() >= from+5 }, patience, time.Millisecond)
				})
				defer stop()
			}
			for _, progress := range all {
				progress()
			}
		})
	}
}

// A reservation for another pool ends with the wait of that pool, and with that pool.
func TestReservationsInOtherPoolsEnd(t *testing.T) {
	for name, shared := range sharing(32 << 20) {
		t.Run(name, func(t *testing.T) {
			a, b := memmgr.NewPool(shared), memmgr.NewPool(shared)
			held := newMany(t, b, 30, 1<<20)
			claim := func(ctx context.Context) chan granted {
				c := request(a, ctx, 24<<20)
				require.Eventually(t, func() bool { return memmgr.ReservesForAnotherPool(b) }, patience, 100*time.Microsecond)
				return c
			}
			ctx, cancel := context.WithCancel(context.Background())
			gone := claim(ctx)
			cancel()
			require.ErrorIs(t, (<-gone).err, context.Canceled)
			require.Eventually(t, func() bool { return !memmgr.ReservesForAnotherPool(b) }, patience, time.Millisecond)
			for i := 0; i < 30; i += 2 {
				held[i].Release()
			}
			for i := 0; i < 30; i += 2 {
				held[i] = mustNew(t, b, 1<<20) // out of segments that are open again
			}
			last := claim(context.Background())
			testenv.As[*memmgr.LeakError](t, b.Close())
			releaseAll(held)
			served(t, last).Release()
			require.NoError(t, a.Close())
		})
	}
}
