package memmgr_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// This file runs the load of a service on host memory for a long time, with limits that requests reach often. The
// process must not grow, and all memory must be free at the end.
const (
	// The time is divided into parts. The minimum of the resident memory may rise by this much over four
	// consecutive parts. A leak adds memory in each part.
	endureRise      = 0.01
	endureFractions = 12
)

// TestEndure runs the load for two seconds, or the time in USMBRIDGE_HUNT in seconds. Growth of memory shows only in
// runs of minutes.
func TestEndure(t *testing.T) {
	d := huntTime(t, 2*time.Second)
	memmgr.RecordStacks(0)
	s := newServiceLoad(memmgr.Host())
	s.touch = true
	s.touchAll(t)
	var stop atomic.Bool
	var workers sync.WaitGroup
	for g := range serviceWorkers {
		workers.Go(func() { s.work(g, &stop) })
	}
	least := s.watchResident(t, d)
	stop.Store(true)
	workers.Wait()
	memmgr.Flush()

	stats := s.pool.Stats()
	for i := range s.inUse {
		require.Zero(t, s.inUse[i].Load(), "tenant %d", i)
	}
	require.Zero(t, stats.Allocation.Current)
	require.Zero(t, stats.AllocatedBytes.Current)
	require.Zero(t, stats.NumWaiting)
	require.NotZero(t, stats.WaitLatency.Count, "no request had to wait: the limits were not reached")
	s.close()
	n := len(least)
	rise := float64(least[n-1]-least[n-4]) / float64(least[n-4])
	t.Logf("%d requests in %v, %d waits, %d gave up; resident at least %d MiB, %d MiB at the end (%+.2f %%)",
		s.served.Load(), d, stats.WaitLatency.Count, s.failed.Load(), least[0]>>20, least[n-1]>>20, 100*rise)
	if d >= time.Minute {
		require.LessOrEqual(t, rise, endureRise, "resident memory rose in the last four twelfths: %v", least)
	}
}

// touchAll allocates memory up to the pool's limit and writes to every page, so that the resident memory
// does not grow later by first accesses.
func (s *serviceLoad) touchAll(t *testing.T) {
	t.Helper()
	const size = 2 << 20
	var all []memmgr.Buffer
	defer func() {
		releaseAll(all)
	}()
	for {
		b, err := memmgr.New(s.pool, memmgr.Request{Size: size})
		if errors.Is(err, memmgr.ErrOutOfMemory) {
			return
		}
		require.NoError(t, err)
		clear(unsafe.Slice((*byte)(b.Data()), b.Size()))
		all = append(all, b)
	}
}

// watchResident returns the minimum of the resident memory in each twelfth of the time.
func (s *serviceLoad) watchResident(t *testing.T, d time.Duration) (least []int64) {
	const looks = 3
	for len(least) < endureFractions {
		low := int64(math.MaxInt64)
		for range looks {
			time.Sleep(d / (endureFractions * looks))
			text := testenv.Must(os.ReadFile("/proc/self/statm"))(t)
			var size, resident int64
			_, err := fmt.Sscan(string(text), &size, &resident)
			require.NoError(t, err)
			low = min(low, resident*int64(os.Getpagesize()))
		}
		least = append(least, low)
		t.Logf("%d/%d: %d requests, resident %d KiB", len(least), endureFractions, s.served.Load(), low>>10)
	}
	return least
}
