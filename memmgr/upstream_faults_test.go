package memmgr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// faulty is a user's resource that panics, or returns blocks that do not serve the request.
type faulty struct {
	*memtest.Simulated
	panics                   bool
	moves, shortens, forgets uintptr
	zero                     bool
}

func (f *faulty) Allocate(r memmgr.Request) (memmgr.Block, error) {
	if f.panics {
		panic("a bug of the resource")
	}
	b, err := f.Simulated.Allocate(r)
	if f.zero {
		f.Simulated.Free(b)
		return memmgr.Block{}, nil
	}
	b.Address, b.Size, b.Requested = b.Address+f.moves, b.Size-f.shortens, b.Requested-f.forgets
	return b, err
}

func (f *faulty) Free(b memmgr.Block) {
	b.Address, b.Size = b.Address-f.moves, b.Size+f.shortens
	f.Simulated.Free(b)
}

// A request to a faulty resource ends with the panic of the resource or with a typed error. No limit, tenant or arena
// keeps a charge, the upstream has its block back, and no lock stays held.
func TestFaultyUpstream(t *testing.T) {
	const size = 1 << 20
	for name, f := range map[string]faulty{
		"panic": {panics: true}, "misaligned": {moves: 64}, "too small": {shortens: 4096}, "zero": {zero: true},
	} {
		for _, waits := range []bool{false, true} {
			f := f
			f.Simulated = memtest.NewSimulated()
			limit := memmgr.NewLimit(&f, 8*size)
			p := memmgr.NewPool(limit, memmgr.WithLimit(8*size))
			tenant := testenv.Must(p.NewTenant("tenant", memmgr.TenantOptions{Hard: 4 * size}))(t)
			a := arena.New(arena.Options{Limit: 4 * size})
			targets := map[string]memmgr.Resource{
				"pool": p, "tenant": tenant, "limit": limit, "resource": &f,
				"arena": a.Over(&f), "arena over a tenant": a.Over(tenant),
			}
			for target, r := range targets {
				request := memmgr.Request{Size: size}
				if waits {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					defer cancel()
					request.Context = ctx
				}
				for range 5 { // charges that stay would reach the limits
					if f.panics {
						require.PanicsWithValue(t, "a bug of the resource", func() { _, _ = memmgr.New(r, request) })
						continue
					}
					_, err := memmgr.New(r, request)
					require.ErrorIs(t, err, memmgr.ErrRequest, "%s of %s", name, target)
					require.Contains(t, err.Error(), "correct its Allocate")
				}
			}
			blocks, _ := f.InUse()
			require.Zero(t, blocks, name)
			require.Zero(t, limit.Used(), name)
			require.Zero(t, tenant.Stats().ActiveBytes.Current, name)
			require.Zero(t, p.Stats().ReservedBytes.Current, name)
			f.panics, f.moves, f.shortens, f.zero = false, 0, 0, false
			for target, r := range targets {
				b, err := memmgr.New(r, memmgr.Request{Size: 4 * size})
				require.NoError(t, err, target)
				b.Release()
				p.Trim(0)
			}
			a.End()
			require.NoError(t, p.Close())
			require.Zero(t, limit.Used())
		}
	}
}

// A resource does not set Block.Requested. A limit subtracts what it added.
func TestRequestedIsSetForAResourceThatForgetsIt(t *testing.T) {
	f := &faulty{Simulated: memtest.NewSimulated(), forgets: 1 << 20}
	limit := memmgr.NewLimit(f, 8<<20)
	b := testenv.Must(limit.Allocate(memmgr.Request{Size: 1 << 20}))(t)
	limit.Free(b)
	require.Zero(t, limit.Used())
}

// A waiter for which the poller asks the upstream gets the panic of the upstream. Its tenant keeps no charge, and
// another waiter is served afterwards.
func TestUpstreamPanicsForAWaiter(t *testing.T) {
	f := &faulty{Simulated: memtest.NewSimulated()}
	up := &upstream{Resource: f}
	full, panics := true, false
	up.setAsk(func(r memmgr.Request) error {
		switch {
		case panics:
			panics = false
			panic("a bug of the resource")
		case full:
			full, panics = false, true
			return &memmgr.OutOfMemoryError{Request: r}
		}
		return nil
	})
	p := memmgr.NewPool(up, memmgr.WithLimit(4<<20))
	tenant := testenv.Must(p.NewTenant("tenant", memmgr.TenantOptions{Hard: 1 << 20}))(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	require.PanicsWithValue(t, "a bug of the resource", func() {
		_, _ = memmgr.New(tenant, memmgr.Request{Size: 1 << 20, Context: ctx})
	})
	require.Zero(t, tenant.Stats().ActiveBytes.Current)
	require.Zero(t, p.Stats().NumWaiting)
	b := testenv.Must(memmgr.New(tenant, memmgr.Request{Size: 1 << 20, Context: ctx}))(t)
	b.Release()
	require.NoError(t, p.Close())
}
