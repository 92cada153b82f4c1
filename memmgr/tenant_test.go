package memmgr_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

func newTenant(t testing.TB, p *memmgr.Pool, name string, o memmgr.TenantOptions) *memmgr.Tenant {
	t.Helper()
	return testenv.Opened(p.NewTenant(name, o))(t)
}

func TestTenantOptionsAreChecked(t *testing.T) {
	_, p := simulatedPool(t)
	require.ErrorIs(t, testenv.ErrorOf(p.NewTenant("a", memmgr.TenantOptions{Weight: -1})), memmgr.ErrRequest)
	require.ErrorIs(t, testenv.ErrorOf(p.NewTenant("a", memmgr.TenantOptions{Soft: 2, Hard: 1})), memmgr.ErrRequest)
	tenant := newTenant(t, p, "named", memmgr.TenantOptions{})
	testenv.Failed(t, testenv.ErrorOf(p.NewTenant("named", memmgr.TenantOptions{})), memmgr.ErrRequest, `"named"`)
	closed := newTenant(t, p, "closed", memmgr.TenantOptions{})
	b := mustNew(t, closed, 1000)
	require.NoError(t, closed.Close())
	newTenant(t, p, "closed", memmgr.TenantOptions{}) // while memory of the first one is in use
	b.Release()
	require.Equal(t, "named", tenant.Name())
	require.Same(t, p, tenant.Upstream())
	over, ok := memmgr.As[*memmgr.Pool](tenant)
	require.True(t, ok)
	require.Same(t, p, over)
}

// The hard limit grants its last byte and not one more, for each size of block, although blocks are cached on
// several processors.
func TestTenantHardLimitIsExact(t *testing.T) {
	for _, size := range []uintptr{256, 4096, 100 << 10, 1 << 20, 3 << 20, 20 << 20} {
		_, p := simulatedPool(t)
		n := max(3, min(3000, 64<<20/int(size)))
		tenant := newTenant(t, p, "exact", memmgr.TenantOptions{Hard: uint64(size) * uint64(n)})
		other := newTenant(t, p, "other", memmgr.TenantOptions{Hard: 1 << 20})
		for range 3 {
			held := newMany(t, tenant, n, size)
			for range 3 {
				_, err := memmgr.New(tenant, memmgr.Request{Size: 1, Tag: "one more"})
				oom := testenv.As[*memmgr.OutOfMemoryError](t, err)
				require.Equal(t, "exact", oom.Tenant)
				require.EqualValues(t, size*uintptr(n), oom.Limit)
				require.EqualValues(t, size*uintptr(n), oom.Allocated)
				require.Equal(t, []memmgr.Holder{{Tenant: "exact", Bytes: uint64(size) * uint64(n), Count: uint64(n)}}, oom.Holders)
				require.ErrorContains(t, err, "exact")
			}
			mustNew(t, other, 1000).Release()
			mustNew(t, p, 1000).Release()
			held[n/2].Release()
			held[n/2] = mustNew(t, tenant, size)
			require.ErrorIs(t, testenv.ErrorOf(memmgr.New(tenant, memmgr.Request{Size: 1})), memmgr.ErrOutOfMemory)
			s := tenant.Stats()
			require.EqualValues(t, n, s.Allocation.Current)
			require.EqualValues(t, uintptr(n)*size, s.AllocatedBytes.Current)
			require.EqualValues(t, uintptr(n)*size, s.ActiveBytes.Current)
			require.EqualValues(t, uintptr(n)*size, s.ActiveBytes.Peak)
			releaseAll(held)
			require.Zero(t, tenant.Stats().ActiveBytes.Current)
			require.Zero(t, tenant.Stats().Allocation.Current)
			require.Zero(t, tenant.Stats().RequestedBytes.Current)
		}
	}
}

// Memory that was released with work pending counts until the work is done.
func TestTenantIsChargedForPendingMemory(t *testing.T) {
	sim, p := simulatedPool(t)
	tenant := newTenant(t, p, "pending", memmgr.TenantOptions{Hard: 2 << 20})
	b := mustAllocate(t, tenant, 2<<20)
	event := sim.Submit(3)
	b.Queue, b.Event = 3, sim.CopyEvent(event)
	tenant.Free(b)
	s := tenant.Stats()
	require.Zero(t, s.Allocation.Current)
	require.EqualValues(t, 2<<20, s.ActiveBytes.Current)
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(tenant, memmgr.Request{Size: 1})), memmgr.ErrOutOfMemory)
	waiting := request(tenant, context.Background(), 1<<20)
	require.Eventually(t, func() bool { return tenant.Stats().NumWaiting == 1 }, patience, 100*time.Microsecond)
	mustNew(t, p, 4<<20).Release()
	sim.Complete(event)
	sim.ReleaseEvent(event)
	served(t, waiting).Release()
	require.Zero(t, tenant.Stats().ActiveBytes.Current)
}

// Waiters at a hard limit are served in order. They do not affect other accounts: their pool has no limit.
func TestTenantWaits(t *testing.T) {
	_, p := simulatedPool(t)
	tenant := newTenant(t, p, "waits", memmgr.TenantOptions{Hard: 3 << 20})
	servedInOrder(t, tenant, 1<<20, func() int64 {
		mustNew(t, p, 100<<20).Release()
		return tenant.Stats().NumWaiting
	})
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(tenant, memmgr.Request{Size: 4 << 20, Context: context.Background()})), memmgr.ErrOutOfMemory, "never possible")
}

// A large request that the hard limit refuses does not stop small ones, and small ones do not starve it.
func TestTenantAtItsLimitDelaysNoOtherTenant(t *testing.T) {
	_, p := simulatedPool(t)
	tenant := newTenant(t, p, "mixed", memmgr.TenantOptions{Hard: 16 << 20})
	held := mustNew(t, tenant, 8<<20)
	ctx, cancel := context.WithCancel(context.Background())
	never := request(tenant, ctx, 12<<20)
	rounds, stop := keepBusy(t, tenant, 200, 1<<20)
	require.Eventually(t, func() bool { return rounds.Load() > 5000 }, patience, 100*time.Microsecond)
	cancel()
	require.ErrorIs(t, (<-never).err, context.Canceled)
	held.Release()
	for range 3 {
		require.Eventually(t, func() bool { return tenant.Stats().NumWaiting > 16 }, patience, 100*time.Microsecond)
		served(t, request(tenant, context.Background(), 15<<20)).Release()
	}
	stop()
	require.Zero(t, tenant.Stats().ActiveBytes.Current)
}

func TestClosedTenant(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(8<<20))
	tenant, err := p.NewTenant("closed", memmgr.TenantOptions{Hard: 6 << 20})
	require.NoError(t, err)
	b := mustNew(t, tenant, 5<<20)
	rest := mustNew(t, p, 2<<20)
	atLimit := request(tenant, context.Background(), 2<<20)
	require.Eventually(t, func() bool { return tenant.Stats().NumWaiting == 1 }, patience, 100*time.Microsecond)
	inLine := request(tenant, context.Background(), 1<<20+1)
	require.Eventually(t, func() bool { return tenant.Stats().NumWaiting == 2 }, patience, 100*time.Microsecond)
	require.NoError(t, tenant.Close())
	require.ErrorIs(t, (<-atLimit).err, memmgr.ErrClosed)
	require.ErrorIs(t, (<-inLine).err, memmgr.ErrClosed)
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(tenant, memmgr.Request{Size: 1})), memmgr.ErrClosed)
	require.True(t, b.Valid())
	require.EqualValues(t, 5<<20, tenant.Stats().ActiveBytes.Current)
	b.Release()
	rest.Release()
	require.Zero(t, tenant.Stats().ActiveBytes.Current)
	require.NoError(t, tenant.Close())
	// Its number is used by other tenants, many times over.
	for range 3000 {
		next := testenv.Must(p.NewTenant("next", memmgr.TenantOptions{Hard: 1 << 20}))(t)
		mustNew(t, next, 1000).Release()
		require.NoError(t, next.Close())
	}
	require.NoError(t, p.Close())
	require.ErrorIs(t, testenv.ErrorOf(p.NewTenant("late", memmgr.TenantOptions{})), memmgr.ErrClosed)
}

// While a request waits, a tenant above its soft limit has the lowest priority: its requests without a context
// are refused, and those with a context are served last.
func TestSoftLimitYieldsUnderPressure(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(8<<20))
	greedy := newTenant(t, p, "greedy", memmgr.TenantOptions{Soft: 2 << 20})
	modest := newTenant(t, p, "modest", memmgr.TenantOptions{Soft: 6 << 20})
	held := []memmgr.Buffer{mustNew(t, greedy, 4<<20), mustNew(t, greedy, 2<<20), mustNew(t, modest, 2<<20)}
	first := request(greedy, context.Background(), 2<<20)
	waits(t, p, 1)
	second := request(modest, context.Background(), 2<<20)
	waits(t, p, 2)
	held[1].Release()
	held[1] = served(t, second)
	require.Empty(t, first, "it waits longest, and is above its soft limit")
	held[2].Release()
	held[2] = served(t, first)
	waitsFor := request(modest, context.Background(), 4<<20)
	waits(t, p, 1)
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(greedy, memmgr.Request{Size: 1})), memmgr.ErrOutOfMemory)
	held[0].Release()
	served(t, waitsFor).Release()
	held[1].Release()
	held[2].Release()
}

// Waiters share memory by weight.
func TestWeightsShareFreedMemory(t *testing.T) {
	_, p := simulatedPool(t, memmgr.WithLimit(16<<20))
	held := newMany(t, p, 16, 1<<20)
	counts := map[string]int{}
	got := make(chan string, 100)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var theirs []memmgr.Buffer
	for _, w := range []struct {
		name   string
		weight int
	}{{"one", 1}, {"three", 3}} {
		tenant := newTenant(t, p, w.name, memmgr.TenantOptions{Weight: w.weight})
		for range 16 {
			wg.Go(func() {
				b, err := memmgr.New(tenant, memmgr.Request{Size: 1 << 20, Context: ctx})
				if err != nil {
					return
				}
				mu.Lock()
				theirs = append(theirs, b)
				mu.Unlock()
				got <- w.name
			})
		}
	}
	waits(t, p, 32)
	for _, b := range held {
		b.Release()
		counts[<-got]++
	}
	cancel()
	wg.Wait()
	require.InDelta(t, 12, counts["three"], 1)
	require.InDelta(t, 4, counts["one"], 1)
	releaseAll(theirs)
}

// Tenants are opened and closed while other goroutines read accounts and processors are added: no account is
// lost.
func TestTenantsOpenAndCloseUnderLoad(t *testing.T) {
	_, p := simulatedPool(t)
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	steady := newTenant(t, p, "steady", memmgr.TenantOptions{Hard: 8 << 20, Soft: 1 << 20})
	_, stop := keepBusy(t, steady, 4, 100<<10)
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := range 300 {
				tenant, err := p.NewTenant(fmt.Sprint("passing ", g), memmgr.TenantOptions{Hard: 1 << 20})
				if err != nil {
					t.Error(err)
					return
				}
				b, err := memmgr.New(tenant, memmgr.Request{Size: 1000})
				if err != nil {
					t.Error(err)
					return
				}
				_, err = memmgr.New(steady, memmgr.Request{Size: 1 << 30})
				if !errors.Is(err, memmgr.ErrOutOfMemory) {
					t.Error(err)
				}
				if g == 0 && i%50 == 0 {
					runtime.GOMAXPROCS(before + i/50%3)
				}
				if err := tenant.Close(); err != nil {
					t.Error(err)
				}
				b.Release()
			}
		})
	}
	wg.Wait()
	stop()
	require.Zero(t, steady.Stats().ActiveBytes.Current)
	require.Zero(t, p.Stats().AllocatedBytes.Current)
}

// Tenants lists the open tenants by name.
func TestListTenants(t *testing.T) {
	p := newPool(t, memmgr.Host())
	require.Empty(t, p.Tenants())
	var all []*memmgr.Tenant
	for _, name := range []string{"b", "c", "a"} {
		tenant := testenv.Must(p.NewTenant(name, memmgr.TenantOptions{}))(t)
		all = append(all, tenant)
	}
	require.Equal(t, []*memmgr.Tenant{all[2], all[0], all[1]}, p.Tenants())
	require.NoError(t, all[0].Close())
	require.Equal(t, []*memmgr.Tenant{all[2], all[1]}, p.Tenants())
}

// A request that a tenant's limit refuses counts once, at the tenant and at its pool, also if OnOutOfMemory
// was asked in between, or if the request waited in vain.
func TestRefusalsOfATenantCountOnce(t *testing.T) {
	asked := 0
	p := memmgr.NewPool(memtest.NewSimulated(), memmgr.OnOutOfMemory(func(*memmgr.OutOfMemoryError) bool {
		asked++
		return true
	}))
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	tenant := newTenant(t, p, "small", memmgr.TenantOptions{Hard: 1 << 20})
	b := mustNew(t, tenant, 1<<20)
	defer b.Release()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	brief, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	for i, r := range []memmgr.Request{
		{Size: 2 << 20}, // above the limit
		{Size: 1000}, {Size: 1000, Context: ended}, {Size: 1000, Context: brief},
	} {
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(tenant, r)), memmgr.ErrOutOfMemory)
		require.EqualValues(t, i+1, tenant.Stats().NumOOMs)
		require.EqualValues(t, i+1, p.Stats().NumOOMs)
	}
	require.Positive(t, asked)
}

// A closed tenant serves nothing, also if another tenant has its number, and the counts of neither change.
func TestClosedTenantWhoseNumberIsReused(t *testing.T) {
	const size, hard = 1000, 8 << 20
	use := func(r memmgr.Resource, n int) {
		for range n {
			mustNew(t, r, size).Release()
		}
	}
	for name, request := range map[string]memmgr.Request{
		"plain": {Size: size}, "with a tag": {Size: size, Tag: "of a closed tenant"}, "large": {Size: 3 << 20},
		"with a context": {Size: size, Context: context.Background()},
	} {
		_, p := simulatedPool(t)
		a := testenv.Must(p.NewTenant("a", memmgr.TenantOptions{}))(t)
		use(a, 300)
		before := a.Stats()
		require.NoError(t, a.Close())
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(a, request)), memmgr.ErrClosed, name)
		b := testenv.Must(p.NewTenant("b", memmgr.TenantOptions{Hard: hard}))(t)
		use(b, 100) // the shards have credit now
		for range 300 {
			require.ErrorIs(t, testenv.ErrorOf(memmgr.New(a, request)), memmgr.ErrClosed, name)
		}
		require.Equal(t, before.Allocation, a.Stats().Allocation, name)
		require.Equal(t, before.RequestedBytes, a.Stats().RequestedBytes, name)
		require.Zero(t, a.Stats().ActiveBytes.Current, name)
		require.Zero(t, b.Stats().ActiveBytes.Current, name)
		require.EqualValues(t, 100, b.Stats().Allocation.Allocated, name)
		mustNew(t, b, hard-1024).Release()
	}
}

// The number of a tenant is used again while Close of the tenant runs: the new tenant keeps its credit.
func TestNumberOfATenantIsReusedDuringClose(t *testing.T) {
	const hard = 1 << 20
	_, p := simulatedPool(t)
	a := testenv.Must(p.NewTenant("a", memmgr.TenantOptions{Hard: hard}))(t)
	for range 2000 {
		closed := make(chan error)
		go func() { closed <- a.Close() }()
		b, err := p.NewTenant("b", memmgr.TenantOptions{Hard: hard})
		for range 3 {
			require.NoError(t, err)
			mustNew(t, b, 1000).Release()
		}
		require.NoError(t, <-closed)
		require.Zero(t, a.Stats().ActiveBytes.Current)
		require.Zero(t, b.Stats().ActiveBytes.Current)
		mustNew(t, b, hard).Release()
		require.NoError(t, b.Close())
		a = testenv.Must(p.NewTenant("a", memmgr.TenantOptions{Hard: hard}))(t)
	}
}
