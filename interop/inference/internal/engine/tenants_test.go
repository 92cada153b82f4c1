package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

const soon = 30 * time.Second

// table returns a table of tenants that checks at the end of the test that no request is left.
func table(t testing.TB, o Options) *accounts {
	t.Helper()
	o.Memory = memmgr.NewPool(memmgr.Host())
	require.NoError(t, o.complete())
	a := newAccounts(&o)
	t.Cleanup(func() {
		require.Zero(t, a.running.Load())
		require.Zero(t, a.waiting.Load())
		require.Zero(t, a.requests)
		require.Len(t, a.byLabel, a.idle.Len())
		a.close()
		require.Empty(t, a.byLabel)
		require.NoError(t, o.Memory.Close())
	})
	return a
}

func enter(t testing.TB, a *accounts, tenant string) *ticket {
	t.Helper()
	k, err := a.enter(tenant, false)
	require.NoError(t, err)
	return &k
}

// wait starts k.wait and returns when the request waits.
func wait(t *testing.T, ctx context.Context, k *ticket) chan error {
	t.Helper()
	n := k.accounts.waiting.Load()
	over := make(chan error, 1)
	go func() { over <- k.wait(ctx) }()
	require.Eventually(t, func() bool { return k.accounts.waiting.Load() == n+1 }, soon, 100*time.Microsecond)
	return over
}

func TestBounds(t *testing.T) {
	a := table(t, Options{Requests: 3, PerTenant: 2, Turns: 1})
	a1, a2 := enter(t, a, "a"), enter(t, a, "a")
	_, err := a.enter("a", false)
	require.Equal(t, oip.Busy, oip.As(err).Kind)
	require.Contains(t, err.Error(), "of this client")
	b := enter(t, a, "b")
	_, err = a.enter("c", false)
	require.Equal(t, oip.Busy, oip.As(err).Kind)
	require.NotContains(t, err.Error(), "of this client")
	require.NoError(t, a1.wait(t.Context()))
	require.NoError(t, a1.wait(t.Context()), "it has its turn")
	for _, k := range []*ticket{a1, a2, b} {
		k.leave()
	}
}

// Requests of serial models do not wait for other requests of their tenant.
func TestSerialTurns(t *testing.T) {
	a := table(t, Options{Turns: 1})
	first := enter(t, a, "a")
	require.NoError(t, first.wait(t.Context()))
	var serial []*ticket
	for range serialTurns {
		k, err := a.enter("a", true)
		require.NoError(t, err)
		require.NoError(t, k.wait(t.Context()))
		serial = append(serial, &k)
	}
	next, err := a.enter("a", true)
	require.NoError(t, err)
	over := wait(t, t.Context(), &next)
	serial[0].yield()
	require.NoError(t, <-over)
	for _, k := range append(serial, first, &next) {
		k.leave()
	}
}

// The requests of one client get their turns in order. A request of another client does not wait for them.
func TestOrder(t *testing.T) {
	a := table(t, Options{Turns: 1})
	first := enter(t, a, "a")
	require.NoError(t, first.wait(t.Context()))
	var tickets []*ticket
	var over []chan error
	for range 5 {
		k := enter(t, a, "a")
		tickets, over = append(tickets, k), append(over, wait(t, t.Context(), k))
	}
	other := enter(t, a, "b")
	require.NoError(t, other.wait(t.Context()))
	require.EqualValues(t, 2, a.running.Load())
	require.EqualValues(t, 5, a.waiting.Load())
	first.leave()
	for i, k := range tickets {
		require.NoError(t, <-over[i])
		require.EqualValues(t, 4-i, a.waiting.Load())
		k.leave()
	}
	other.leave()
}

// TestGivingUp checks that a canceled request can wait again and that no turn is lost.
func TestGivingUp(t *testing.T) {
	a := table(t, Options{Turns: 1})
	holder, k := enter(t, a, "a"), enter(t, a, "a")
	require.NoError(t, holder.wait(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	over := wait(t, ctx, k)
	cancel()
	require.ErrorIs(t, <-over, context.Canceled)
	require.ErrorIs(t, k.wait(ctx), context.Canceled)
	require.Zero(t, a.waiting.Load())
	holder.yield()
	require.NoError(t, k.wait(t.Context()))
	require.EqualValues(t, 1, a.running.Load())
	k.leave()
	holder.leave()
}

// TestShared checks that a tenant can use all turns if no other tenant is active, and fewer while
// another tenant is active and for some time afterwards.
func TestShared(t *testing.T) {
	for _, active := range []time.Duration{0, time.Hour} {
		a := table(t, Options{Turns: 4, Shared: 1})
		a.active = active
		var flood []*ticket
		for range 4 {
			k := enter(t, a, "flood")
			require.NoError(t, k.wait(t.Context()))
			flood = append(flood, k)
		}
		quiet := enter(t, a, "quiet")
		require.NoError(t, quiet.wait(t.Context()))
		next := enter(t, a, "flood")
		over := wait(t, t.Context(), next)
		for _, k := range flood[:3] {
			k.leave()
			require.Empty(t, over)
		}
		flood[3].leave()
		require.NoError(t, <-over, "the client has one turn")
		quiet.leave()
		next.leave()

		k1, k2 := enter(t, a, "flood"), enter(t, a, "flood")
		require.NoError(t, k1.wait(t.Context()))
		if active == 0 {
			require.NoError(t, k2.wait(t.Context()), "no other tenant is active")
		} else {
			over := wait(t, t.Context(), k2)
			k1.yield()
			require.NoError(t, <-over)
		}
		k1.leave()
		k2.leave()
	}
}

// TestConcurrentTickets checks with many goroutines that wait, cancel and leave that the limits
// hold and that no turn is lost.
func TestConcurrentTickets(t *testing.T) {
	a := table(t, Options{Requests: 40, PerTenant: 16, Turns: 3, Shared: 1})
	a.active = time.Millisecond
	var wg sync.WaitGroup
	var running [5]atomic.Int64
	var served atomic.Int64
	for g := range 64 {
		wg.Go(func() {
			for range 300 {
				k, err := a.enter(fmt.Sprint("tenant", g%5), false)
				if err != nil {
					if oip.As(err).Kind != oip.Busy {
						t.Error(err)
					}
					time.Sleep(time.Microsecond)
					continue
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(300))*time.Microsecond)
				if k.wait(ctx) == nil {
					if n := running[g%5].Add(1); n > 3 {
						t.Error(n, "requests of one client run")
					}
					served.Add(1)
					running[g%5].Add(-1)
				}
				cancel()
				k.leave()
			}
		})
	}
	wg.Wait()
	require.Positive(t, served.Load())
}

func BenchmarkRefusal(b *testing.B) {
	a := table(b, Options{Requests: 1, Turns: 1})
	defer enter(b, a, "a").leave()
	for b.Loop() {
		if _, err := a.enter("b", false); err == nil {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	a := table(b, Options{Turns: 1})
	for b.Loop() {
		k, err := a.enter("a", false)
		if err != nil || k.wait(b.Context()) != nil {
			b.Fatal(err)
		}
		k.leave()
	}
}
