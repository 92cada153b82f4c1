package fair

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const soon = 30 * time.Second

func newLimiter(t testing.TB, c Config) *Limiter {
	t.Helper()
	l, err := New(c)
	require.NoError(t, err)
	return l
}

func enter(t testing.TB, l *Limiter, tenant string) *Ticket {
	t.Helper()
	k, err := l.Enter(tenant)
	require.NoError(t, err)
	return k
}

// wait starts k.Wait and returns when the ticket waits.
func wait(t *testing.T, ctx context.Context, k *Ticket) chan error {
	t.Helper()
	n := k.limiter.Stats().Waiting
	over := make(chan error, 1)
	go func() { over <- k.Wait(ctx) }()
	require.Eventually(t, func() bool { return k.limiter.Stats().Waiting == n+1 }, soon, 100*time.Microsecond)
	return over
}

func TestBounds(t *testing.T) {
	for _, c := range []Config{{}, {Requests: 0, PerTenant: 1, Calls: 1, Shared: 1}, {Requests: 1, PerTenant: 1, Calls: 1, Shared: 2},
		{Requests: 1, PerTenant: 1, Calls: 1, Shared: 1, Active: -1}} {
		_, err := New(c)
		require.Error(t, err, c)
	}
	l := newLimiter(t, Config{Requests: 3, PerTenant: 2, Calls: 1, Shared: 1})
	a1, a2 := enter(t, l, "a"), enter(t, l, "a")
	_, err := l.Enter("a")
	require.ErrorIs(t, err, ErrTenantFull)
	b := enter(t, l, "b")
	_, err = l.Enter("c")
	require.ErrorIs(t, err, ErrFull)
	require.NoError(t, a1.Wait(t.Context()))
	require.NoError(t, a1.Wait(t.Context()), "it has a place")
	for _, k := range []*Ticket{a1, a2, b} {
		k.Leave()
		k.Leave()
	}
	require.Zero(t, l.Stats())
}

// The requests of one client get places in order. A request of another client does not wait for them.
func TestOrder(t *testing.T) {
	l := newLimiter(t, Config{Requests: 100, PerTenant: 100, Calls: 1, Shared: 1})
	first := enter(t, l, "a")
	require.NoError(t, first.Wait(t.Context()))
	var tickets []*Ticket
	var over []chan error
	for range 5 {
		k := enter(t, l, "a")
		tickets, over = append(tickets, k), append(over, wait(t, t.Context(), k))
	}
	other := enter(t, l, "b")
	require.NoError(t, other.Wait(t.Context()))
	require.Equal(t, Stats{Running: 2, Waiting: 5, Requests: 7, Tenants: 2}, l.Stats())
	first.Leave()
	for i, k := range tickets {
		require.NoError(t, <-over[i])
		require.Equal(t, 4-i, l.Stats().Waiting)
		k.Leave()
	}
	other.Leave()
	require.Zero(t, l.Stats())
}

// TestGivingUp checks that a canceled request can wait again and that no place is lost.
func TestGivingUp(t *testing.T) {
	l := newLimiter(t, Config{Requests: 100, PerTenant: 100, Calls: 1, Shared: 1})
	holder, k := enter(t, l, "a"), enter(t, l, "a")
	require.NoError(t, holder.Wait(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	over := wait(t, ctx, k)
	cancel()
	require.ErrorIs(t, <-over, context.Canceled)
	require.ErrorIs(t, k.Wait(ctx), context.Canceled)
	require.Zero(t, l.Stats().Waiting)
	holder.Yield()
	require.NoError(t, k.Wait(t.Context()))
	require.Equal(t, 1, l.Stats().Running)
	k.Leave()
	holder.Leave()
	require.Zero(t, l.Stats())
}

// TestShared checks that a tenant can use all places if no other tenant is active, and fewer while
// another tenant is active and for some time afterwards.
func TestShared(t *testing.T) {
	for _, active := range []time.Duration{0, time.Hour} {
		l := newLimiter(t, Config{Requests: 100, PerTenant: 100, Calls: 4, Shared: 1, Active: active})
		var flood []*Ticket
		for range 4 {
			k := enter(t, l, "flood")
			require.NoError(t, k.Wait(t.Context()))
			flood = append(flood, k)
		}
		quiet := enter(t, l, "quiet")
		require.NoError(t, quiet.Wait(t.Context()))
		next := enter(t, l, "flood")
		over := wait(t, t.Context(), next)
		for _, k := range flood[:3] {
			k.Leave()
			require.Empty(t, over)
		}
		flood[3].Leave()
		require.NoError(t, <-over, "the client has one place")
		quiet.Leave()
		next.Leave()

		k1, k2 := enter(t, l, "flood"), enter(t, l, "flood")
		require.NoError(t, k1.Wait(t.Context()))
		if active == 0 {
			require.NoError(t, k2.Wait(t.Context()), "no other tenant is active")
		} else {
			over := wait(t, t.Context(), k2)
			k1.Yield()
			require.NoError(t, <-over)
		}
		k1.Leave()
		k2.Leave()
		require.Zero(t, l.Stats())
	}
}

// TestConcurrentTickets checks with many goroutines that wait, cancel and leave that the limits
// hold and that no place is lost.
func TestConcurrentTickets(t *testing.T) {
	l := newLimiter(t, Config{Requests: 40, PerTenant: 16, Calls: 3, Shared: 1, Active: time.Millisecond})
	var wg sync.WaitGroup
	var running [5]atomic.Int64
	var served atomic.Int64
	for g := range 64 {
		wg.Go(func() {
			for range 300 {
				k, err := l.Enter(fmt.Sprint("tenant", g%5))
				if err != nil {
					if !errors.Is(err, ErrFull) && !errors.Is(err, ErrTenantFull) {
						t.Error(err)
					}
					time.Sleep(time.Microsecond)
					continue
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(300))*time.Microsecond)
				if k.Wait(ctx) == nil {
					if n := running[g%5].Add(1); n > 3 {
						t.Error(n, "requests of one client run")
					}
					served.Add(1)
					running[g%5].Add(-1)
				}
				cancel()
				k.Leave()
			}
		})
	}
	wg.Wait()
	require.Zero(t, l.Stats())
	require.Positive(t, served.Load())
}

func BenchmarkRefusal(b *testing.B) {
	l := newLimiter(b, Config{Requests: 1, PerTenant: 1, Calls: 1, Shared: 1})
	defer enter(b, l, "a").Leave()
	for b.Loop() {
		if _, err := l.Enter("b"); err == nil {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	l := newLimiter(b, Config{Requests: 10, PerTenant: 10, Calls: 1, Shared: 1})
	for b.Loop() {
		k, err := l.Enter("a")
		if err != nil || k.Wait(b.Context()) != nil {
			b.Fatal(err)
		}
		k.Leave()
	}
}
