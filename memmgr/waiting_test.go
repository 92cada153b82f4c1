package memmgr_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// patience is the timeout of tests: far longer than any correct run takes.
const patience = 60 * time.Second

// granted is the result of a request that may wait.
type granted struct {
	b   memmgr.Buffer
	err error
}

// request allocates on a goroutine of its own.
func request(r memmgr.Resource, ctx context.Context, size uintptr) chan granted {
	c := make(chan granted, 1)
	go func() {
		b, err := memmgr.New(r, memmgr.Request{Size: size, Context: ctx})
		c <- granted{b, err}
	}()
	return c
}

// waits polls until so many requests wait in the pool.
func waits(t testing.TB, p *memmgr.Pool, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Stats().NumWaiting == n }, patience, 100*time.Microsecond)
}

// served returns the buffer of a request.
func served(t testing.TB, c chan granted) memmgr.Buffer {
	t.Helper()
	select {
	case g := <-c:
		require.NoError(t, g.err)
		return g.b
	case <-time.After(patience):
		require.Fail(t, "a request waits although there is room")
		return memmgr.Buffer{}
	}
}

func mustNew(t testing.TB, r memmgr.Resource, size uintptr) memmgr.Buffer {
	t.Helper()
	b := testenv.Must(memmgr.New(r, memmgr.Request{Size: size}))(t)
	return b
}

func newMany(t testing.TB, r memmgr.Resource, n int, size uintptr) (all []memmgr.Buffer) {
	t.Helper()
	for range n {
		all = append(all, mustNew(t, r, size))
	}
	return all
}

func releaseAll(all []memmgr.Buffer) {
	for _, b := range all {
		b.Release()
	}
}

// servedInOrder checks that waiters for the same amount, of which three fit, are served in the order of arrival, and
// that a waiter that gives up does not block those behind it.
func servedInOrder(t *testing.T, r memmgr.Resource, size uintptr, waiting func() int64) {
	t.Helper()
	await := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return waiting() == n }, patience, 100*time.Microsecond)
	}
	held := []memmgr.Buffer{mustNew(t, r, size), mustNew(t, r, size), mustNew(t, r, size)}
	ctx, cancel := context.WithCancel(context.Background())
	var queue []chan granted
	for i := range 4 {
		c := context.Background()
		if i == 1 {
			c = ctx
		}
		queue = append(queue, request(r, c, size))
		await(int64(i + 1))
	}
	_, err := memmgr.New(r, memmgr.Request{Size: size})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory, "a request without a context does not wait")
	cancel()
	gone := <-queue[1]
	require.ErrorIs(t, gone.err, context.Canceled)
	require.ErrorIs(t, gone.err, memmgr.ErrOutOfMemory)
	var oom *memmgr.OutOfMemoryError
	require.ErrorAs(t, gone.err, &oom)
	require.EqualValues(t, 3*size, oom.Limit)
	await(3)
	for _, i := range []int{0, 2, 3} {
		held[0].Release()
		held = append(held[1:], served(t, queue[i]))
		for _, later := range queue[i+1:] {
			require.Empty(t, later)
		}
	}
	releaseAll(held)
	await(0)
}

func TestWaitingIsFirstComeFirstServed(t *testing.T) {
	for _, size := range []uintptr{1 << 20, 4 << 20, 20 << 20} {
		_, p := simulatedPool(t, memmgr.WithLimit(3*uint64(size)))
		servedInOrder(t, p, size, func() int64 { return p.Stats().NumWaiting })
		require.EqualValues(t, 4, p.Stats().WaitLatency.Count)
	}
}

// A request that could never be served is refused at once, and so is one whose context has ended.
func TestHopelessRequestsDoNotWait(t *testing.T) {
	sim := memtest.NewSimulated(memtest.Capacity(8 << 20))
	p := newPool(t, sim)
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 9 << 20, Context: context.Background()})), memmgr.ErrOutOfMemory)
	l := newPool(t, memmgr.NewLimit(sim, 4<<20))
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(l, memmgr.Request{Size: 5 << 20, Context: context.Background()})), memmgr.ErrOutOfMemory)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	held := mustNew(t, l, 4<<20)
	_, err := memmgr.New(l, memmgr.Request{Size: 4 << 20, Context: over})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	require.ErrorIs(t, err, context.Canceled)
	waiter := request(l, context.Background(), 4<<20)
	waits(t, l, 1)
	select {
	case hopeless := <-request(l, context.Background(), 5<<20):
		require.ErrorIs(t, hopeless.err, memmgr.ErrOutOfMemory, "although another request waits")
	case <-time.After(patience):
		require.Fail(t, "a request waits that can never be served")
	}
	held.Release()
	served(t, waiter).Release()
}

// Close ends the waits for memory, and those at the limits of tenants.
func TestCloseEndsWaits(t *testing.T) {
	sim := memtest.NewSimulated(memtest.Capacity(8 << 20))
	p := memmgr.NewPool(sim)
	tenant := testenv.Must(p.NewTenant("orphan", memmgr.TenantOptions{Hard: 2 << 20}))(t)
	full, held := mustNew(t, tenant, 2<<20), mustNew(t, p, 6<<20)
	a, b, c := request(p, context.Background(), 1000), request(p, context.Background(), 4<<20), request(tenant, context.Background(), 1)
	waits(t, p, 3)
	testenv.As[*memmgr.LeakError](t, p.Close())
	for _, c := range []chan granted{a, b, c} {
		require.ErrorIs(t, (<-c).err, memmgr.ErrClosed)
	}
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(tenant, memmgr.Request{Size: 1, Context: context.Background()})), memmgr.ErrClosed)
	full.Release()
	held.Release()
	require.NoError(t, tenant.Close())
	blocks, _ := sim.InUse()
	require.Zero(t, blocks)
}

// A waiter for the device gets the first block whose work ends. Other waiters are served meanwhile from released
// memory. A lost event affects its own block alone.
func TestWaitingForTheDevice(t *testing.T) {
	for _, size := range []uintptr{1 << 20, 4 << 20, 20 << 20} {
		sim := memtest.NewSimulated(memtest.Capacity(uint64(3 * size)))
		p := memmgr.NewPool(sim)
		released := func(b memmgr.Block) (event uintptr) {
			b.Queue, b.Event = 7, sim.Submit(7)
			event = sim.CopyEvent(b.Event)
			p.Free(b)
			return event
		}
		held := mustAllocate(t, p, size)
		lost := released(mustAllocate(t, p, size))
		late := released(mustAllocate(t, p, size))
		first, second := request(p, context.Background(), size), request(p, context.Background(), size)
		waits(t, p, 2)
		third := request(p, context.Background(), size)
		waits(t, p, 3)
		p.Free(held)
		b := served(t, oneOf(t, first, second, third))
		require.EqualValues(t, 2*size, p.Stats().ActiveBytes.Current-p.Stats().AllocatedBytes.Current)
		sim.Complete(late)
		c := served(t, oneOf(t, first, second, third))
		b.Release()
		c.Release()
		served(t, oneOf(t, first, second, third)).Release()
		require.EqualValues(t, size, p.Stats().ActiveBytes.Current, "the lost one")
		sim.Complete(lost)
		sim.ReleaseEvent(lost)
		sim.ReleaseEvent(late)
		require.NoError(t, p.Close())
		blocks, _ := sim.InUse()
		require.Zero(t, blocks)
		noEvents(t, sim)
	}
}

// oneOf returns the result of the first of some requests that is served.
func oneOf(t testing.TB, all ...chan granted) chan granted {
	t.Helper()
	got := make(chan granted, 1)
	require.Eventually(t, func() bool {
		for _, c := range all {
			select {
			case g := <-c:
				got <- g
				return true
			default:
			}
		}
		return false
	}, patience, 100*time.Microsecond)
	return got
}

// Memory that other users of the device release serves waiters: the pool asks the upstream again.
func TestWaitingForMemoryThatOtherRequestsTook(t *testing.T) {
	sim := memtest.NewSimulated(memtest.Capacity(8 << 20))
	p := newPool(t, sim)
	foreign, err := sim.Allocate(memmgr.Request{Size: 6 << 20})
	require.NoError(t, err)
	small, large := request(p, context.Background(), 3000<<10), request(p, context.Background(), 7<<20)
	waits(t, p, 2)
	sim.Free(foreign)
	for range 2 {
		served(t, oneOf(t, small, large)).Release()
	}
}

// keepBusy lets n goroutines allocate and release blocks of a size until stopped; each waits if necessary.
func keepBusy(t testing.TB, r memmgr.Resource, n int, size uintptr) (rounds *atomic.Int64, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	rounds = &atomic.Int64{}
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				b, err := memmgr.New(r, memmgr.Request{Size: size, Context: ctx})
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				rounds.Add(1)
				b.Release()
			}
		})
	}
	return rounds, func() { cancel(); wg.Wait() }
}

// A large request is served although small ones use all memory that is released.
func TestSmallRequestsDoNotStarveLargeOnes(t *testing.T) {
	for _, large := range []uintptr{6 << 20, 28 << 20} {
		limit := large + 2<<20
		_, p := simulatedPool(t, memmgr.WithLimit(uint64(limit)))
		n := 8 * int(limit>>20)
		rounds, stop := keepBusy(t, p, n, 1<<20)
		for range 3 {
			from := rounds.Load()
			require.Eventually(t, func() bool { return rounds.Load() > from+int64(10*n) }, patience, time.Millisecond)
			served(t, request(p, context.Background(), large)).Release()
		}
		stop()
	}
}

// Small requests that queue to ask the upstream, and leave the queue with a block that was freed meanwhile,
// count among those that a large one let pass: in the end they wait behind it.
func TestSmallRequestsBeforeTheUpstreamDoNotStarveLargeOnes(t *testing.T) {
	p := newPool(t, memtest.NewSimulated(memtest.Capacity(8<<20)))
	held := make([]memmgr.Buffer, 8)
	for i := range held {
		held[i] = mustNew(t, p, 1<<20)
	}
	large := request(p, context.Background(), 4<<20)
	waits(t, p, 1)
	behind := func() bool { return p.Stats().NumWaiting == 2 }
	var small chan granted
	for round := 0; !behind(); round++ {
		require.Less(t, round, 1000, "small requests were served first")
		letGrow := p.HoldGrowth()
		small = request(p, context.Background(), 1<<20)
		require.Eventually(t, func() bool { return behind() || strings.Contains(goroutines(), ").extend(") }, patience, 100*time.Microsecond)
		held[0].Release()
		letGrow()
		require.Eventually(t, func() bool { return behind() || len(small) == 1 }, patience, 100*time.Microsecond)
		if len(small) == 1 {
			held[0] = served(t, small)
		}
	}
	for i := range held[1:] {
		held[1+i].Release()
	}
	served(t, large).Release()
	served(t, small).Release()
}

// A request that finds the limit full waits for memory of the pool, not for the upstream, which another
// request asks.
func TestFullLimitBesideASlowUpstream(t *testing.T) {
	sim := memtest.NewSimulated()
	u := &upstream{Resource: sim}
	p := memmgr.NewPool(memmgr.NewLimit(u, 8<<20))
	held := mustNew(t, p, 6<<20)
	asked, answer := make(chan struct{}), make(chan struct{})
	u.setAsk(func(memmgr.Request) error { close(asked); <-answer; return nil })
	slow := request(p, context.Background(), 2<<20)
	<-asked
	c := request(p, context.Background(), 4<<20)
	waits(t, p, 1)
	held.Release()
	served(t, c).Release()
	close(answer)
	served(t, slow).Release()
	require.NoError(t, p.Close())
	returned(t, sim)
}

// A large request that cannot be served does not stop small ones.
func TestLargeRequestsDoNotStarveSmallOnes(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(32<<20))
	held := mustNew(t, p, 20<<20)
	ctx, cancel := context.WithCancel(context.Background())
	large := []chan granted{request(p, ctx, 24<<20), request(p, ctx, 6<<20), request(p, ctx, 24<<20)}
	rounds, stop := keepBusy(t, p, 16, 1<<20)
	from := rounds.Load()
	require.Eventually(t, func() bool { return rounds.Load()-from > 5000 }, patience, time.Millisecond)
	stop()
	cancel()
	for _, c := range large {
		if g := <-c; g.err == nil {
			g.b.Release()
		} else {
			require.ErrorIs(t, g.err, context.Canceled)
		}
	}
	held.Release()
}

// A request for which the upstream has no room does not stop smaller requests behind it: neither if there are a few
// of them, nor if many wait in between.
func TestWaitersBehindTheFirstAskTheUpstreamToo(t *testing.T) {
	for name, make := range map[string]func(bound uint64) (*memtest.Simulated, *memmgr.Pool){
		"limit": func(bound uint64) (*memtest.Simulated, *memmgr.Pool) {
			sim := memtest.NewSimulated()
			return sim, memmgr.NewPool(sim, memmgr.WithLimit(bound))
		},
		"device": func(bound uint64) (*memtest.Simulated, *memmgr.Pool) {
			sim := memtest.NewSimulated(memtest.Capacity(bound))
			return sim, memmgr.NewPool(sim)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct{ bound, held, first, behind uintptr }{
				{32 << 20, 20 << 20, 14 << 20, 6 << 20},
				{32 << 20, 20 << 20, 14 << 20, 9 << 20},
				{4 << 20, 5 << 19, 2 << 20, 64 << 10},
				{4 << 20, 5 << 19, 2 << 20, 5 << 18},
			} {
				for _, before := range []int{1, 40} {
					sim, p := make(uint64(c.bound))
					held := mustNew(t, p, c.held)
					ctx, cancel := context.WithCancel(context.Background())
					var stuck []chan granted
					for i := range before {
						stuck = append(stuck, request(p, ctx, c.first))
						waits(t, p, int64(i+1))
					}
					if before == 1 || c.behind <= c.first/4 {
						served(t, request(p, context.Background(), c.behind)).Release()
					}
					held.Release()
					for _, x := range stuck {
						served(t, x).Release()
					}
					cancel()
					require.NoError(t, p.Close())
					blocks, _ := sim.InUse()
					require.Zero(t, blocks)
				}
			}
		})
	}
}

// A request that waits in the pool's line is charged when it is served and not before. Meanwhile other requests of
// the tenant can use its whole limit.
func TestWaiterForMemoryTakesNoRoomOfItsTenant(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(48<<20))
	tenant := newTenant(t, p, "t", memmgr.TenantOptions{Hard: 32 << 20})
	held := mustNew(t, p, 30<<20)
	large := request(tenant, context.Background(), 24<<20)
	waits(t, p, 1)
	require.Zero(t, tenant.Stats().ActiveBytes.Current, "it has nothing")
	small := served(t, request(tenant, context.Background(), 12<<20))
	require.EqualValues(t, 12<<20, tenant.Stats().ActiveBytes.Current)
	held.Release()
	for range 20 {
		require.Empty(t, large, "beyond the hard limit")
		time.Sleep(time.Millisecond)
	}
	small.Release()
	served(t, large).Release()

	held = mustNew(t, p, 30<<20)
	ctx, cancel := context.WithCancel(context.Background())
	large = request(tenant, ctx, 24<<20)
	waits(t, p, 1)
	cancel()
	require.ErrorIs(t, (<-large).err, context.Canceled)
	require.NoError(t, tenant.Close())
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(tenant, memmgr.Request{Size: 1 << 20, Context: context.Background()})), memmgr.ErrClosed)
	require.Zero(t, tenant.Stats().ActiveBytes.Current)
	held.Release()
}

// A large request is served although released memory is small and reused before enough of it is free, and other
// requests are served all the time.
func TestALargeRequestGathersSlowlyFreedMemory(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(32<<20))
	held := newMany(t, p, 32, 1<<20)
	large := request(p, context.Background(), 16<<20)
	waits(t, p, 1)
	var small []chan granted
	for deadline := time.Now().Add(patience); len(large) == 0; {
		require.True(t, time.Now().Before(deadline), "the large request starves")
		if len(held) > 0 {
			held[0].Release()
			held = held[1:]
			small = append(small, request(p, context.Background(), 1<<20))
		}
		time.Sleep(2 * time.Millisecond) // delays each release
		for len(small) > 0 && len(small[0]) > 0 {
			held, small = append(held, served(t, small[0])), small[1:]
		}
	}
	served(t, large).Release()
	releaseAll(held)
	for _, c := range small {
		served(t, c).Release()
	}
}

// While the pool reserves memory for a waiter, a request that cannot wait still gets free memory.
func TestReservedMemoryServesRequestsWithoutAContext(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(32<<20))
	held := newMany(t, p, 32, 1<<20)
	ctx, cancel := context.WithCancel(context.Background())
	large := request(p, ctx, 12<<20)
	waits(t, p, 1)
	for i := 0; i < 32; i += 2 {
		held[i].Release()
	}
	held[0] = served(t, request(p, context.Background(), 1<<20))
	require.Eventually(t, func() bool { return memmgr.PoolReserves(p) }, patience, 100*time.Microsecond)
	for i := 2; i < 32; i += 2 {
		held[i] = mustNew(t, p, 1<<20)
	}
	cancel()
	require.ErrorIs(t, (<-large).err, context.Canceled)
	releaseAll(held)
}

// Requests that queue behind waiters do not make the poller look in other pools more often than it does by itself.
func TestQueuedRequestsDoNotSearch(t *testing.T) {
	p := newPool(t, memtest.NewSimulated(), memmgr.WithLimit(8<<20))
	all := mustNew(t, p, 8<<20)
	ctx, cancel := context.WithCancel(t.Context())
	first := request(p, ctx, 1<<20)
	waits(t, p, 1)
	var searches atomic.Int64
	defer memmgr.AddCache(func() { searches.Add(1) })()
	start := time.Now()
	var rest []chan granted
	for range 300 {
		rest = append(rest, request(p, ctx, 1<<20))
		time.Sleep(100 * time.Microsecond)
	}
	most := 5 + time.Since(start)/(10*time.Millisecond) // askAgain
	require.LessOrEqual(t, searches.Load(), int64(most))
	cancel()
	for _, c := range append(rest, first) {
		require.Error(t, (<-c).err)
	}
	all.Release()
}

// meter is a wrapper of a user, which hides the limit below it from the pool.
type meter struct{ memmgr.Resource }

func (m meter) Upstream() memmgr.Resource { return m.Resource }

// A limit that the pool does not see counts the idle segments of the pool. A request that needs their room is served,
// with a context and without.
func TestIdleMemoryBelowALimitThatThePoolDoesNotSee(t *testing.T) {
	const limit = 4 << 20
	for name, upstream := range map[string]func() memmgr.Resource{
		"limit": func() memmgr.Resource { return memmgr.NewLimit(memtest.NewSimulated(), limit) },
		"wrapper above a limit": func() memmgr.Resource {
			return meter{memmgr.NewLimit(memtest.NewSimulated(), limit)}
		},
		"pool with a limit": func() memmgr.Resource {
			return memmgr.NewPool(memtest.NewSimulated(), memmgr.WithLimit(limit))
		},
		"device": func() memmgr.Resource { return memtest.NewSimulated(memtest.Capacity(limit)) },
	} {
		for _, own := range []uint64{0, 2 * limit} {
			for _, waits := range []bool{false, true} {
				p := memmgr.NewPool(upstream(), memmgr.WithLimit(own))
				mustNew(t, p, limit*3/4).Release()
				r := memmgr.Request{Size: limit}
				if waits {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					defer cancel()
					r.Context = ctx
				}
				b, err := memmgr.New(p, r)
				require.NoError(t, err, "%s, own limit %d, waits %v", name, own, waits)
				b.Release()
				require.NoError(t, p.Close())
			}
		}
	}
}

// The lines of tenants share memory by their weights, also after more than 256 TiB.
func TestSharesAfterManyBytes(t *testing.T) {
	const bytes = 1 << 40
	weights := []uint64{1, 3}
	memmgr.ServeInTurns(bytes, 5000, weights, func(served []float64) {
		require.InDelta(t, served[0]/float64(weights[0]), served[1]/float64(weights[1]), bytes, "%v", served)
	})
}
