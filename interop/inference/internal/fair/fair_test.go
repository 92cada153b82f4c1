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

func enter(t *testing.T, q *Queue, tenant string) *Ticket {
	t.Helper()
	k, err := q.Enter(tenant)
	require.NoError(t, err)
	return k
}

// line has tickets wait one after the other and tells on the channel who was served.
func line(t *testing.T, q *Queue, names ...string) (served chan string, tickets map[string]*Ticket) {
	t.Helper()
	served, tickets = make(chan string, len(names)), map[string]*Ticket{}
	for i, name := range names {
		k := enter(t, q, name[:1])
		tickets[name] = k
		go func() {
			if k.Wait(context.Background()) == nil {
				served <- name
			}
		}()
		require.Eventually(t, func() bool { return q.Stats().Waiting == i+1 }, 30*time.Second, 100*time.Microsecond)
	}
	return served, tickets
}

// Tenants take turns, whatever the order they came in; the requests of one stay in order.
func TestRotation(t *testing.T) {
	q, err := New(Config{Turns: 1, Requests: 100, PerTenant: 100})
	require.NoError(t, err)
	first := enter(t, q, "a")
	require.NoError(t, first.Wait(t.Context()))
	require.NoError(t, first.Wait(t.Context()), "it has one")
	served, tickets := line(t, q, "a1", "a2", "a3", "a4", "b1", "b2", "c1")
	first.Leave()
	first.Leave()
	var order []string
	for range 7 {
		name := <-served
		order = append(order, name)
		tickets[name].Leave()
	}
	require.Equal(t, []string{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}, order)
	require.Equal(t, Stats{MaxTurns: 1, MaxRequests: 100}, q.Stats())
}

func TestBounds(t *testing.T) {
	_, err := New(Config{Turns: 1, Requests: 0, PerTenant: 1})
	require.Error(t, err)
	q, err := New(Config{Turns: 1, Requests: 3, PerTenant: 2})
	require.NoError(t, err)
	a1, a2 := enter(t, q, "a"), enter(t, q, "a")
	_, err = q.Enter("a")
	require.ErrorIs(t, err, ErrTenantFull)
	b := enter(t, q, "b")
	_, err = q.Enter("c")
	require.ErrorIs(t, err, ErrFull)
	for _, k := range []*Ticket{a1, a2, b} {
		k.Leave()
		require.Error(t, k.Wait(t.Context()), "it has left")
	}
	require.Zero(t, q.Stats().Tenants, "nobody is remembered")
}

// Who gives up leaves the line, and a turn that comes at that moment goes on to the next.
func TestGivingUp(t *testing.T) {
	q, err := New(Config{Turns: 1, Requests: 100, PerTenant: 100})
	require.NoError(t, err)
	holder := enter(t, q, "h")
	require.NoError(t, holder.Wait(t.Context()))
	gone := enter(t, q, "a")
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- gone.Wait(ctx) }()
	require.Eventually(t, func() bool { return q.Stats().Waiting == 1 }, 30*time.Second, 100*time.Microsecond)
	served, tickets := line(t, q)
	require.Empty(t, tickets)
	cancel()
	require.ErrorIs(t, <-over, context.Canceled)
	require.ErrorIs(t, gone.Wait(ctx), context.Canceled, "an ended context waits for nothing")
	require.Zero(t, q.Stats().Waiting)
	holder.Yield()
	require.NoError(t, gone.Wait(t.Context()), "it may wait again")
	require.Equal(t, 1, q.Stats().Turns)
	gone.Leave()
	holder.Leave()
	require.Empty(t, served)
	require.Equal(t, Stats{MaxTurns: 1, MaxRequests: 100}, q.Stats())
}

// A tenant that is alone has all turns; while another is about, and for a while afterwards, it
// leaves those free that it need not have.
func TestShared(t *testing.T) {
	_, err := New(Config{Turns: 1, Requests: 1, PerTenant: 1, Shared: -1})
	require.Error(t, err)
	for _, about := range []time.Duration{0, time.Hour} {
		q, err := New(Config{Turns: 4, Requests: 100, PerTenant: 100, Shared: 2, About: about})
		require.NoError(t, err)
		var flood []*Ticket
		for range 4 {
			k := enter(t, q, "f")
			require.NoError(t, k.Wait(t.Context()), "nobody else is there")
			flood = append(flood, k)
		}
		served, tickets := line(t, q, "f1", "f2")
		quiet := enter(t, q, "quiet")
		flood[0].Leave()
		require.NoError(t, quiet.Wait(t.Context()), "before those who wait")
		flood[1].Leave()
		require.Equal(t, 3, q.Stats().Turns, "the flood has two, and leaves one free")
		flood[2].Leave()
		flood[3].Leave()
		for range 2 {
			name := <-served
			tickets[name].Leave()
		}
		quiet.Leave()

		var more []*Ticket
		for range 2 {
			k := enter(t, q, "f")
			require.NoError(t, k.Wait(t.Context()))
			more = append(more, k)
		}
		third := enter(t, q, "f")
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- third.Wait(ctx) }()
		if about == 0 {
			require.NoError(t, <-over, "the other one has left")
		} else {
			require.Eventually(t, func() bool { return q.Stats().Waiting == 1 }, 30*time.Second, 100*time.Microsecond)
			cancel()
			require.ErrorIs(t, <-over, context.Canceled, "the other one may come again")
		}
		cancel()
		for _, k := range append(more, third) {
			k.Leave()
		}
		require.Equal(t, Stats{MaxTurns: 4, MaxRequests: 100}, q.Stats())
	}
}

// Who is alone begins without a turn, who is not has one, which stays when it is used.
func TestEarly(t *testing.T) {
	q, err := New(Config{Turns: 1, Requests: 100, PerTenant: 100, Lapse: time.Hour})
	require.NoError(t, err)
	a := enter(t, q, "a")
	require.NoError(t, a.Early(t.Context()))
	require.Zero(t, q.Stats().Turns, "nobody else is there")
	b := enter(t, q, "b")
	require.NoError(t, a.Early(t.Context()))
	require.Equal(t, 1, q.Stats().Turns)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Early(ctx), context.Canceled)
	require.NoError(t, a.Wait(t.Context()), "it has one")
	a.Leave()
	require.NoError(t, b.Wait(t.Context()))
	b.Yield()
	b.Leave()
	require.Equal(t, Stats{MaxTurns: 1, MaxRequests: 100}, q.Stats())
}

// A turn that was taken early and is not used goes to whoever waits, and its ticket waits again.
func TestLapse(t *testing.T) {
	q, err := New(Config{Turns: 2, Requests: 100, PerTenant: 100, Lapse: time.Millisecond})
	require.NoError(t, err)
	slow, slower, next := enter(t, q, "a"), enter(t, q, "b"), enter(t, q, "c")
	require.NoError(t, slow.Early(t.Context()))
	require.NoError(t, slower.Early(t.Context()))
	require.NoError(t, next.Wait(t.Context()))
	last := enter(t, q, "d")
	require.NoError(t, last.Wait(t.Context()))
	require.Equal(t, 2, q.Stats().Turns)
	over := make(chan error)
	go func() { over <- slow.Wait(t.Context()) }()
	require.Eventually(t, func() bool { return q.Stats().Waiting == 1 }, 30*time.Second, 100*time.Microsecond)
	slower.Leave()
	next.Leave()
	require.NoError(t, <-over, "and what is used does not lapse")
	slow.Leave()
	last.Leave()
	require.Equal(t, Stats{MaxTurns: 2, MaxRequests: 100}, q.Stats())
}

// Under many goroutines that wait, give up and leave, no more turns are taken than there
// are, and none is lost.
func TestMany(t *testing.T) {
	for _, c := range []Config{
		{Turns: 3, Requests: 40, PerTenant: 16},
		{Turns: 3, Requests: 40, PerTenant: 16, Shared: 1, About: time.Millisecond, Lapse: 50 * time.Microsecond},
	} {
		many(t, c)
	}
}

func many(t *testing.T, c Config) {
	t.Helper()
	q, err := New(c)
	require.NoError(t, err)
	var wg sync.WaitGroup
	var within, served, refused atomic.Int64
	for g := range 64 {
		wg.Go(func() {
			for range 300 {
				k, err := q.Enter(fmt.Sprint("tenant", g%5))
				if err != nil {
					refused.Add(1)
					if !errors.Is(err, ErrFull) && !errors.Is(err, ErrTenantFull) {
						t.Error(err)
					}
					time.Sleep(time.Microsecond)
					continue
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(300))*time.Microsecond)
				early := rand.IntN(2) == 0 && k.Early(ctx) == nil
				if early && rand.IntN(4) == 0 {
					time.Sleep(100 * time.Microsecond)
				}
				if k.Wait(ctx) == nil {
					if n := within.Add(1); n > 3 {
						t.Error(n, "have a turn")
					}
					served.Add(1)
					within.Add(-1)
				}
				cancel()
				k.Leave()
			}
		})
	}
	wg.Wait()
	require.Equal(t, Stats{MaxTurns: 3, MaxRequests: 40}, q.Stats())
	require.Positive(t, served.Load())
}

func BenchmarkRefusal(b *testing.B) {
	q, err := New(Config{Turns: 1, Requests: 1, PerTenant: 1})
	require.NoError(b, err)
	k, err := q.Enter("a")
	require.NoError(b, err)
	defer k.Leave()
	for b.Loop() {
		if _, err := q.Enter("b"); err == nil {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkTurn(b *testing.B) {
	q, err := New(Config{Turns: 1, Requests: 10, PerTenant: 10})
	require.NoError(b, err)
	for b.Loop() {
		k, err := q.Enter("a")
		if err != nil || k.Wait(b.Context()) != nil {
			b.Fatal(err)
		}
		k.Leave()
	}
}
