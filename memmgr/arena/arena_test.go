package arena_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

func TestMain(m *testing.M) { memtest.Main(m) }

func newPool(t testing.TB) *memmgr.Pool {
	t.Helper()
	p := memmgr.NewPool(memmgr.Host())
	t.Cleanup(func() {
		memmgr.Flush()
		require.NoError(t, p.Close())
	})
	return p
}

func newTenant(t testing.TB, p *memmgr.Pool, hard uint64) *memmgr.Tenant {
	t.Helper()
	return testenv.Must(p.NewTenant("client", memmgr.TenantOptions{Hard: hard}))(t)
}

func allocate(t testing.TB, r memmgr.Resource, size uintptr, tag string) memmgr.Buffer {
	t.Helper()
	return testenv.Must(memmgr.New(r, memmgr.Request{Size: size, Tag: tag}))(t)
}

// The memory of an arena passes the conformance suite over every upstream.
func TestMemoryIsAResource(t *testing.T) {
	for name, make := range map[string]func(testing.TB) memmgr.Resource{
		"Host":      func(testing.TB) memmgr.Resource { return memmgr.Host() },
		"Pool":      func(t testing.TB) memmgr.Resource { return newPool(t) },
		"Tenant":    func(t testing.TB) memmgr.Resource { return newTenant(t, newPool(t), 1<<30) },
		"Simulated": func(testing.TB) memmgr.Resource { return memtest.NewSimulated() },
	} {
		t.Run(name, func(t *testing.T) {
			memtest.Run(t, func(t testing.TB) memmgr.Resource {
				a := arena.New(arena.Options{Name: name, Limit: 1 << 30})
				t.Cleanup(func() { require.Zero(t, a.End()) })
				return a.Over(make(t))
			}, memtest.Options{AddressOnly: name == "Simulated"})
		})
	}
}

func TestEndReleasesOwnedValuesAndReturnsTheRest(t *testing.T) {
	tenant := newTenant(t, newPool(t), 1<<20)
	a := arena.New(arena.Options{Name: "request 7"})
	m := a.Over(tenant)
	require.Same(t, m, a.Over(tenant))

	owned := allocate(t, m, 1000, "input")
	require.NoError(t, a.Own(owned))
	early := allocate(t, m, 2000, "input")
	require.NoError(t, a.Own(early))
	early.Release()
	kept := allocate(t, m, 3000, "answer")
	require.NoError(t, a.Own(kept))
	require.True(t, a.Keep(kept))
	require.False(t, a.Keep(kept), "it is the caller's already")
	held := allocate(t, m, 4000, "cache")
	foreign := allocate(t, tenant, 5000, "")
	require.NoError(t, a.Own(foreign))
	require.EqualValues(t, 8000, a.Used())

	before, bytes := arena.Outstanding()
	left := a.End()
	require.Equal(t, arena.Left{Blocks: 1, Bytes: 4000, ByTag: []memmgr.Holder{{Tenant: "request 7", Tag: "cache", Bytes: 4000, Count: 1}}}, left)
	require.Equal(t, "4000 bytes in 1 blocks are held beyond the end of the arena: by cache 4000 in 1", left.String())
	require.False(t, owned.Valid())
	require.False(t, foreign.Valid())
	require.True(t, kept.Valid())
	require.True(t, held.Valid())
	require.Panics(t, func() { owned.Data() })
	owned.Release() // and a late Release does nothing
	after, more := arena.Outstanding()
	require.Equal(t, before+2, after, "kept and held")
	require.Equal(t, bytes+7000, more)
	require.EqualValues(t, 2, tenant.Stats().Allocation.Current, "they count for the tenant")

	_, err := memmgr.New(m, memmgr.Request{Size: 1})
	testenv.Failed(t, err, memmgr.ErrClosed, `"request 7" has ended`)
	require.ErrorIs(t, a.Own(held), memmgr.ErrClosed)
	held.Release()
	require.Zero(t, a.Left())
	require.Empty(t, a.Left().String())
	require.Zero(t, a.End(), "again")
	kept.Release()
	after, more = arena.Outstanding()
	require.Equal(t, before, after)
	require.Equal(t, bytes, more)
	require.Zero(t, tenant.Stats().Allocation.Current)
}

func TestLimitIsOneOverAllResources(t *testing.T) {
	a := arena.New(arena.Options{Name: "r", Limit: 10000})
	defer a.End()
	host, device := a.Over(memmgr.Host()), a.Over(memtest.NewSimulated())
	x, y := allocate(t, host, 6000, "x"), allocate(t, device, 3000, "y")
	z := allocate(t, host, 500, "y")
	_, err := memmgr.New(device, memmgr.Request{Size: 501})
	require.ErrorIs(t, err, arena.ErrLimit)
	var oom *memmgr.OutOfMemoryError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 9500, oom.Allocated)
	require.EqualValues(t, 10000, oom.Limit)
	require.Equal(t, "r", oom.Tenant)
	require.Equal(t, []memmgr.Holder{{Tenant: "r", Tag: "x", Bytes: 6000, Count: 1}, {Tenant: "r", Tag: "y", Bytes: 3500, Count: 2}}, oom.Holders)
	z.Release()
	allocate(t, device, 501, "").Release()
	// A request that the upstream refuses is not charged.
	_, err = memmgr.New(a.Over(memmgr.NewLimit(memmgr.Host(), 10)), memmgr.Request{Size: 900})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	require.NotErrorIs(t, err, arena.ErrLimit)
	allocate(t, host, 1000, "").Release()
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(host, memmgr.Request{Size: ^uintptr(0)})), memmgr.ErrRequest)
	x.Release()
	y.Release()
}

func TestAllocationsWaitWithTheirContext(t *testing.T) {
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(8<<20))
	defer func() { require.NoError(t, pool.Close()) }()
	a := arena.New(arena.Options{})
	defer a.End()
	m := a.Over(pool)
	all := allocate(t, m, 6<<20, "")
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(m, memmgr.Request{Size: 6 << 20})), memmgr.ErrOutOfMemory)
	ctx, cancel := context.WithCancelCause(t.Context())
	waits := make(chan error)
	go func() {
		_, err := memmgr.New(m, memmgr.Request{Size: 6 << 20, Context: ctx})
		waits <- err
	}()
	cancel(errors.New("gone"))
	err := <-waits
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 6<<20, a.Used(), "the charge of what was not had is given back")
	go func() {
		b, err := memmgr.New(m, memmgr.Request{Size: 6 << 20, Context: t.Context()})
		b.Release()
		waits <- err
	}()
	all.Release()
	require.NoError(t, <-waits)
}

func TestEndDuringConcurrentAllocations(t *testing.T) {
	pool := newPool(t)
	blocks, bytes := arena.Outstanding()
	for i := range 400 {
		a := arena.New(arena.Options{})
		m := a.Over([]memmgr.Resource{pool, memmgr.Host()}[i%2])
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					b, err := memmgr.New(m, memmgr.Request{Size: 100})
					if err != nil {
						return
					}
					if i%4 < 2 || a.Own(b) != nil {
						b.Release()
					}
				}
			})
		}
		a.End()
		wg.Wait()
		require.Zero(t, a.Left())
	}
	nowBlocks, nowBytes := arena.Outstanding()
	require.Equal(t, blocks, nowBlocks)
	require.Equal(t, bytes, nowBytes)
	require.Zero(t, pool.Stats().Allocation.Current)
}

// Objects that the arena owns and that were released before do not accumulate.
func TestOwnedIsPruned(t *testing.T) {
	a := arena.New(arena.Options{})
	defer a.End()
	m := a.Over(newPool(t))
	for range 100000 {
		b := allocate(t, m, 16, "")
		require.NoError(t, a.Own(b))
		b.Release()
	}
	require.Less(t, arena.Owns(a), 1000)
}

// Thousands of arenas leave nothing behind: no memory, and no record.
func TestTenThousandArenasAreFlat(t *testing.T) {
	tenant := newTenant(t, newPool(t), 1<<30)
	cells := uint64(0)
	for i := range 10000 {
		a := arena.New(arena.Options{Name: "request", Limit: 1 << 20})
		m := a.Over(tenant)
		for k := range 4 {
			require.NoError(t, a.Own(allocate(t, m, uintptr(1000*k), "request")))
		}
		require.Zero(t, a.End())
		if i == 100 {
			cells = owner.Bytes()
		}
	}
	memmgr.Flush()
	require.Zero(t, tenant.Stats().Allocation.Current)
	require.LessOrEqual(t, owner.Bytes(), cells+1<<16, "cells are used again")
}

func TestContexts(t *testing.T) {
	require.Nil(t, arena.FromContext(t.Context()))
	a := arena.New(arena.Options{Name: "x"})
	defer a.End()
	ctx, cancel := context.WithCancel(arena.NewContext(t.Context(), a))
	defer cancel()
	require.Same(t, a, arena.FromContext(ctx))
	require.Equal(t, "x", arena.FromContext(ctx).Name())
	require.Nil(t, arena.FromContext(arena.NewContext(ctx, nil)), "nil takes it away")
}

func TestResourceIsChosen(t *testing.T) {
	rt := testenv.Must(syclobj.Open(syclobj.HostOnly()))(t)
	defer func() { require.NoError(t, memmgr.CloseDefaults()); require.NoError(t, rt.Close()) }()
	one, two := memtest.NewSimulated(), memtest.NewSimulated()
	choose := func(r memmgr.Resource) arena.Chooser {
		return func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error) { return r, nil }
	}
	for _, c := range []struct {
		own, otherwise arena.Chooser
		want           memmgr.Resource
	}{{choose(one), choose(two), one}, {nil, choose(two), two}, {choose(one), nil, one}, {nil, nil, nil}} {
		a := arena.New(arena.Options{Choose: c.own})
		m := testenv.Must(a.Resource(rt.HostQueue(), syclobj.USMUnknown, c.otherwise))(t)
		if c.want == nil {
			c.want = testenv.Must(memmgr.Default(rt.HostQueue(), syclobj.USMUnknown))(t)
		}
		require.Same(t, a.Over(c.want), m)
		a.End()
	}
	failed := errors.New("no tenant")
	a := arena.New(arena.Options{Choose: func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error) { return nil, failed }})
	_, err := a.Resource(rt.HostQueue(), syclobj.USMUnknown, nil)
	require.Equal(t, failed, err)
}

func TestBadUse(t *testing.T) {
	a := arena.New(arena.Options{})
	defer a.End()
	var none *memmgr.Pool
	for _, r := range []memmgr.Resource{nil, none} {
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(a.Over(r), memmgr.Request{Size: 1})), memmgr.ErrRequest)
	}
	m := a.Over(memmgr.Host())
	b := testenv.Must(m.Allocate(memmgr.Request{Size: 10}))(t)
	other := arena.New(arena.Options{})
	defer other.End()
	require.PanicsWithError(t, fmt.Sprintf("memmgr: arena.Free: %#x: not allocated from this arena", b.Address), func() { other.Over(memmgr.Host()).Free(b) })
	m.Free(b)
	require.Panics(t, func() { m.Free(b) })
	mine := allocate(t, m, 1, "")
	require.False(t, other.Keep(mine))
	require.EqualValues(t, 1, a.Left().Blocks, "another arena's Keep is no word about it")
	mine.Release()
	require.False(t, a.Keep(mine), "what is gone")
	require.False(t, a.Keep(memmgr.Buffer{}))
}

func BenchmarkArena(b *testing.B) {
	memmgr.RecordStacks(0)
	defer memmgr.RecordStacks(16)
	pool := memmgr.NewPool(memmgr.Host())
	defer func() { require.NoError(b, pool.Close()) }()
	a := arena.New(arena.Options{})
	defer a.End()
	for name, r := range map[string]memmgr.Resource{"Pool": pool, "Memory": a.Over(pool)} {
		b.Run("Allocate/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf, err := memmgr.New(r, memmgr.Request{Size: 4096})
				if err != nil {
					b.Fatal(err)
				}
				buf.Release()
			}
		})
	}
	for _, n := range []int{0, 1, 10, 100} {
		b.Run(fmt.Sprintf("Request/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a := arena.New(arena.Options{Limit: 1 << 30})
				m := a.Over(pool)
				for range n {
					buf, err := memmgr.New(m, memmgr.Request{Size: 4096})
					if err != nil || a.Own(buf) != nil {
						b.Fatal(err)
					}
				}
				a.End()
			}
		})
	}
}

// End does not end a request that waits for memory. The request gets its memory, which is outstanding until its release.
func TestEndWhileARequestWaits(t *testing.T) {
	p := memmgr.NewPool(memtest.NewSimulated(), memmgr.WithLimit(1<<20))
	held := allocate(t, p, 1<<20, "")
	a := arena.New(arena.Options{})
	served := make(chan memmgr.Buffer)
	go func() {
		b, err := memmgr.New(memmgr.Waiting(context.Background(), a.Over(p)), memmgr.Request{Size: 1 << 20})
		if err != nil {
			t.Error(err)
		}
		served <- b
	}()
	for p.Stats().NumWaiting == 0 {
		time.Sleep(time.Millisecond)
	}
	before, _ := arena.Outstanding()
	require.Zero(t, a.End().Blocks)
	held.Release()
	b := <-served
	now, _ := arena.Outstanding()
	require.EqualValues(t, 1, now-before)
	b.Release()
	now, _ = arena.Outstanding()
	require.Equal(t, before, now)
	require.NoError(t, p.Close())
}
