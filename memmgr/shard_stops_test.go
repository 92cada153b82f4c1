package memmgr_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// hammer lets goroutines allocate and free blocks of a host pool while other goroutines stop the shards all the
// time. It calls meanwhile once, under load. Each block in use contains the number of its user, so that a block
// with two users is detected.
func hammer(p *memmgr.Pool, goroutines, rounds int, meanwhile func() error) error {
	if instrumented {
		rounds /= 8
	}
	before := p.Stats()
	var steps atomic.Int64
	var over atomic.Bool
	failures := make(chan error, goroutines+2)
	var users, others sync.WaitGroup
	for g := range goroutines {
		users.Go(func() { failures <- useBlocks(p, uint64(g+1), rounds, &steps) })
	}
	others.Go(func() {
		for !over.Load() {
			p.Stats()
			p.Trim(0)
			runtime.Gosched()
		}
	})
	others.Go(func() {
		for steps.Load() < int64(goroutines*rounds/4) && !over.Load() {
			runtime.Gosched()
		}
		failures <- meanwhile()
	})
	users.Wait()
	over.Store(true)
	others.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			return err
		}
	}
	s := p.Stats()
	if got := s.Allocation.Allocated - before.Allocation.Allocated; got != int64(goroutines*rounds) ||
		s.Allocation.Current != 0 || s.AllocatedBytes.Current != 0 || s.RequestedBytes.Current != 0 {
		return fmt.Errorf("the counts are wrong: %d allocations of %d, %+v", got, goroutines*rounds, s.Allocation)
	}
	return nil
}

// useBlocks holds a few blocks at a time and writes its number to each.
func useBlocks(p *memmgr.Pool, number uint64, rounds int, steps *atomic.Int64) error {
	var held [8]memmgr.Buffer
	mark := func(b memmgr.Buffer, from, to uint64) error {
		if !atomic.CompareAndSwapUint64((*uint64)(unsafe.Pointer(b.Data())), from, to) {
			return fmt.Errorf("the block at %#x has two users", b.Address())
		}
		return nil
	}
	for i := range rounds + len(held) {
		b := &held[i%len(held)]
		if b.Valid() {
			if err := mark(*b, number, 0); err != nil {
				return err
			}
			b.Release()
		}
		if i >= rounds {
			continue
		}
		var err error
		if *b, err = memmgr.New(p, memmgr.Request{Size: uintptr(64 << (i % 3))}); err != nil {
			return err
		}
		if err := mark(*b, 0, number); err != nil {
			return err
		}
		steps.Add(1)
	}
	return nil
}

// Shards are not corrupted while they are stopped and read by other goroutines. The race detector checks the same
// code.
func TestShardsUnderStops(t *testing.T) {
	p := newHostPool(t)
	require.NoError(t, hammer(p, 4, 20000, func() error { return nil }))
}

// Processors that are added after the pool was made have no shard. They use the depot, and the counts stay
// exact.
func TestProcessorsWithoutAShard(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	p := newHostPool(t)
	most := memmgr.Shards(p) + 3
	require.NoError(t, hammer(p, 6, 20000, func() error {
		runtime.GOMAXPROCS(most)
		return nil
	}))
	// A goroutine moves to another processor when the operating system runs that one's thread.
	seen := func() bool {
		var found atomic.Bool
		var wg sync.WaitGroup
		for range 2 * most {
			wg.Go(func() {
				for range 1000 {
					if pin.Pin() >= memmgr.Shards(p) {
						found.Store(true)
					}
					pin.Unpin()
				}
			})
		}
		wg.Wait()
		return found.Load()
	}
	for end := time.Now().Add(patience); pin.Fast && !seen() && time.Now().Before(end); {
		require.NoError(t, hammer(p, 2*most, 500, func() error { return nil }))
	}
	require.NoError(t, hammer(p, 2*most, 2000, func() error { return nil }))
	runtime.GOMAXPROCS(before)
	p.Trim(0)
	s := p.Stats()
	require.Zero(t, s.CachedBytes)
	require.Zero(t, s.Allocation.Current)
	require.NoError(t, p.Close())
}
