package memmgr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// Every resource passes the same suite, alone and stacked.
func TestEveryResource(t *testing.T) {
	simulated := func(testing.TB) memmgr.Resource { return memtest.NewSimulated() }
	host := func(testing.TB) memmgr.Resource { return memmgr.Host() }
	pool := func(t testing.TB) memmgr.Resource { return newHostPool(t) }
	large, addresses := memtest.Options{Largest: 40 << 20, MaxAlign: 4 << 20}, memtest.Options{AddressOnly: true}
	for _, c := range []struct {
		name    string
		make    func(testing.TB) memmgr.Resource
		options memtest.Options
	}{
		{"Host", host, memtest.Options{}},
		{"Simulated", simulated, addresses},
		{"Limit", func(t testing.TB) memmgr.Resource { return memmgr.NewLimit(host(t), 1<<30) }, memtest.Options{}},
		{"Pool", pool, large},
		{"Tenant", func(t testing.TB) memmgr.Resource {
			return newTenant(t, newHostPool(t), "suite", memmgr.TenantOptions{Hard: 1 << 30})
		}, large},
		{"PoolOverSimulated", func(t testing.TB) memmgr.Resource { return newPool(t, simulated(t)) }, addresses},
		{"PoolOverLimits", func(t testing.TB) memmgr.Resource {
			return newPool(t, memmgr.NewLimit(memmgr.NewLimit(host(t), 1<<31), 1<<30), memmgr.WithTrace(100), memmgr.WithCache(1<<20))
		}, memtest.Options{}},
		{"LimitsOverPool", func(t testing.TB) memmgr.Resource {
			return memmgr.NewLimit(memmgr.NewLimit(pool(t), 1<<31), 1<<30)
		}, memtest.Options{}},
		{"WaitingForPool", func(t testing.TB) memmgr.Resource { return memmgr.Waiting(context.Background(), pool(t)) }, memtest.Options{}},
	} {
		t.Run(c.name, func(t *testing.T) { memtest.Run(t, c.make, c.options) })
	}
}

func TestLimitRefusesWithTheWholeAccount(t *testing.T) {
	l := memmgr.NewLimit(memmgr.Host(), 10000)
	a := mustNew(t, l, 6000)
	_, err := memmgr.New(l, memmgr.Request{Size: 6000, Tag: "second"})
	oom := testenv.As[*memmgr.OutOfMemoryError](t, err)
	require.EqualValues(t, 10000, oom.Limit)
	require.EqualValues(t, 6000, oom.Allocated)
	for _, part := range []string{"5.859 KiB", "second", "limit"} {
		require.Contains(t, err.Error(), part)
	}
	a.Release()
	require.Zero(t, l.Used())
}

// Waiting sets the context of requests that have none, and leaves buffers to the resource below.
func TestWaiting(t *testing.T) {
	p := newHostPool(t, memmgr.WithLimit(2<<20))
	held := mustAllocate(t, p, 2<<20)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, wait := range map[string]func() error{
		"New":      func() error { _, err := memmgr.New(memmgr.Waiting(ended, p), memmgr.Request{Size: 1}); return err },
		"Allocate": func() error { _, err := memmgr.Waiting(ended, p).Allocate(memmgr.Request{Size: 1}); return err },
		"own context": func() error {
			_, err := memmgr.New(memmgr.Waiting(context.Background(), p), memmgr.Request{Size: 1, Context: ended})
			return err
		},
	} {
		require.ErrorIs(t, wait(), context.Canceled, name)
	}
	p.Free(held)
	b := testenv.Must(memmgr.New(memmgr.Waiting(ended, p), memmgr.Request{Size: 1}))(t)
	require.Same(t, p, b.Resource())
	b.Release()
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(memmgr.Waiting(ended, nil), memmgr.Request{Size: 1})), memmgr.ErrRequest)
}

// TrimAll trims a pool above another one first.
func TestTrimAll(t *testing.T) {
	below := newHostPool(t, memmgr.WithDecay(0))
	above := newPool(t, below, memmgr.WithDecay(0))
	other := newHostPool(t, memmgr.WithDecay(0))
	for _, p := range []*memmgr.Pool{above, other} {
		mustNew(t, p, 5<<20).Release()
	}
	reserved := below.Stats().ReservedBytes.Current + other.Stats().ReservedBytes.Current
	require.GreaterOrEqual(t, memmgr.TrimAll(), uint64(reserved))
	for _, p := range []*memmgr.Pool{above, below, other} {
		require.Zero(t, p.Stats().ReservedBytes.Current)
	}
}
