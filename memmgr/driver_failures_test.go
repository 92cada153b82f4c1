//go:build cgo && linux

package memmgr_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testfaults"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestDriverFailsAtRandom: while calls of the real SYCL library fail at random, requests to pools with tenants
// and waiters return memory or an error that names the reason. Afterwards everything works and nothing is left.
func TestDriverFailsAtRandom(t *testing.T) {
	testfaults.Child(t, rand.Uint64(), nil, func(faults *testfaults.Faults) {
		rt := testenv.Must(syclobj.Open(syclobj.RequireSYCL()))(t)
		for round := range testfaults.Rounds() {
			faultyRound(t, rt, faults, uint64(round))
		}
		t.Logf("%d faults", faults.Failed())
		require.NotZero(t, faults.Failed())
		require.NoError(t, rt.Close())
		require.Eventually(t, func() bool { memmgr.Flush(); return syclobj.LiveObjects() == syclobj.Live{} }, patience, 10*time.Millisecond, "%+v", syclobj.LiveObjects())
	})
}

func faultyRound(t *testing.T, rt *syclobj.Runtime, faults *testfaults.Faults, round uint64) {
	rng := rand.New(rand.NewPCG(round, 1))
	first := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
	second := testenv.Must(rt.NewQueue(nil, rt.DefaultDevice(), syclobj.InOrder))(t)
	upstream := memmgr.USM(first, kinds[round%3])
	p := memmgr.NewPool(memmgr.NewLimit(upstream, 16<<20), memmgr.WithSegment(1<<20))
	accounts := []memmgr.Resource{p}
	for _, o := range []memmgr.TenantOptions{{Soft: 2 << 20}, {Hard: 6 << 20}} {
		tenant := testenv.Must(p.NewTenant("tenant "+strconv.Itoa(len(accounts)), o))(t)
		accounts = append(accounts, tenant)
	}
	faults.Rate(pick[uint32](rng, 200, 5000, 50000, 300000))
	var all sync.WaitGroup
	for g := range uint64(6) {
		rng := rand.New(rand.NewPCG(round, g+2))
		all.Go(func() {
			for range 25 {
				q := pick(rng, first, second)
				if err := useMemory(pick(rng, accounts...), q, uintptr(1+rng.IntN(5<<20)), rng.IntN(4) != 0, rng); err != nil {
					requireDriverError(t, err)
				}
			}
		})
	}
	all.Wait()
	faults.Rate(0)
	for _, from := range accounts {
		require.NoError(t, useMemory(from, second, 3<<20, true, rng), "after the faults")
	}
	require.NoError(t, p.Close())
	require.NoError(t, memmgr.Close(upstream))
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
}

// useMemory allocates memory, waiting for it or not, and submits work on it.
func useMemory(from memmgr.Resource, q *syclobj.Queue, size uintptr, waits bool, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	request := memmgr.Request{Size: size, Queue: q}
	if waits {
		request.Context = ctx
	}
	b, err := memmgr.New(from, request)
	if err != nil {
		return err
	}
	defer b.Release()
	e, err := q.Memset(b.Data(), byte(size), size)
	if err == nil {
		err = errors.Join(b.SetPending(q, e), e.Close())
	}
	if rng.IntN(2) == 0 {
		b.UsedOn(q)
		b.SharedOn(q)
	}
	if rng.IntN(2) == 0 {
		err = errors.Join(err, b.WaitContext(ctx))
	}
	return err
}

// requireDriverError asserts that an error names a reason: the library, or memory that is used up.
func requireDriverError(t *testing.T, err error) {
	for _, kind := range []error{syclobj.ErrFailed, syclobj.ErrAllocation, syclobj.ErrAsync, syclobj.ErrNoDevice, memmgr.ErrOutOfMemory} {
		if errors.Is(err, kind) {
			return
		}
	}
	t.Errorf("%T: %v", err, err)
}
