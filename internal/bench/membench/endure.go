//go:build cgo && linux

package main

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
)

// This file runs the load of a service on host memory for a long time, with limits that requests reach often. The
// process must not grow, and all memory must be free at the end.
const (
	endureLimit = 256 << 20
	endureHard  = 80 << 20
	// The time is divided into parts. The minimum of the resident memory may rise by this much over four
	// consecutive parts. A leak adds memory in each part.
	endureRise      = 0.01
	endureFractions = 12
)

// runEndure runs the load and prints its state. It fails if memory is still in use at the end, if no request reached
// a limit, or, if flat is set, if memory grew until the end.
func runEndure(d time.Duration, flat bool) error {
	s := &serviceLoad{limit: endureLimit, hard: endureHard, touch: true}
	s.pool = memmgr.NewPool(memmgr.Host(), memmgr.WithName("endure"), memmgr.WithLimit(endureLimit), memmgr.WithDecay(0))
	for i := range s.tenants {
		tenant, err := s.pool.NewTenant(string(rune('a'+i)), memmgr.TenantOptions{Hard: endureHard})
		if err != nil {
			return err
		}
		s.tenants[i] = tenant
	}
	if err := s.touchAll(); err != nil {
		return err
	}
	var stop atomic.Bool
	var workers sync.WaitGroup
	for g := range serviceWorkers {
		workers.Go(func() { s.work(g, &stop) })
	}
	least := s.watchResident(d)
	stop.Store(true)
	workers.Wait()
	memmgr.Flush()

	stats := s.pool.Stats()
	var all []error
	for i := range s.inUse {
		if n := s.inUse[i].Load(); n != 0 {
			all = append(all, fmt.Errorf("tenant %d has %d bytes in use", i, n))
		}
		if t := s.tenants[i].(*memmgr.Tenant); t.Close() != nil {
			all = append(all, fmt.Errorf("tenant %d cannot be closed", i))
		}
	}
	if stats.Allocation.Current != 0 || stats.AllocatedBytes.Current != 0 || stats.NumWaiting != 0 {
		all = append(all, fmt.Errorf("the pool counts %d allocations of %d bytes, and %d waiting requests",
			stats.Allocation.Current, stats.AllocatedBytes.Current, stats.NumWaiting))
	}
	all = append(all, s.pool.Close())
	if n, bytes := memmgr.LiveCount(); n != 0 {
		all = append(all, fmt.Errorf("%d buffers of %d bytes are referenced", n, bytes))
	}
	if stats.WaitLatency.Count == 0 {
		all = append(all, errors.New("no request had to wait: the limits were not reached"))
	}
	rise := 0.0
	if n := len(least); n >= 4 {
		rise = float64(least[n-1]-least[n-4]) / float64(least[n-4])
	}
	if flat && rise > endureRise {
		all = append(all, fmt.Errorf("resident memory rose by %.2f %% in the last four twelfths: %v", 100*rise, least))
	}
	fmt.Printf("endure: %d requests in %v, %d waits, %d gave up; resident at least %d MiB, %d MiB at the end (%+.2f %%)\n",
		s.served.Load(), d, stats.WaitLatency.Count, s.failed.Load(), least[0]>>20, least[len(least)-1]>>20, 100*rise)
	return errors.Join(all...)
}

// touchAll allocates memory up to the pool's limit and writes to every page, so that the resident memory
// does not grow later by first accesses.
func (s *serviceLoad) touchAll() error {
	const size = 2 << 20
	var all []memmgr.Buffer
	defer func() {
		for _, b := range all {
			b.Release()
		}
	}()
	for {
		b, err := memmgr.New(s.pool, memmgr.Request{Size: size})
		if errors.Is(err, memmgr.ErrOutOfMemory) {
			return nil
		}
		if err != nil {
			return err
		}
		clear(unsafe.Slice((*byte)(b.Data()), b.Size()))
		all = append(all, b)
	}
}

// watchResident returns the minimum of the resident memory in each twelfth of the time.
func (s *serviceLoad) watchResident(d time.Duration) (least []int64) {
	const looks = 3
	for len(least) < endureFractions {
		low := int64(math.MaxInt64)
		for range looks {
			time.Sleep(d / (endureFractions * looks))
			low = min(low, int64(residentSet()))
		}
		least = append(least, low)
		if d >= time.Minute {
			fmt.Printf("%3d/%d: %d requests, resident %d KiB\n", len(least), endureFractions, s.served.Load(), low>>10)
		}
	}
	return least
}
