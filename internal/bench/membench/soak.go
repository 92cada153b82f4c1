//go:build cgo && linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// A soak run fills and checks buffers of shared USM on the real device for a given time, on in-order and out-of-order
// queues, with waits that time out. It releases many buffers with pending work. Every value read must
// be the value written, every block must be free at the end, except for blocks whose events the driver
// never completes, and the resident memory must not grow.
const (
	soakLimit    = 1 << 30
	soakPatience = 10 * time.Second
	// The CPU driver loses events of out-of-order queues if there are many submissions, with and without this
	// pool. With this many at a time it does not.
	soakOutOfOrder = 32
)

// soak is the state of a run.
type soak struct {
	pace     time.Duration // pause between two operations of a worker
	pool     *memmgr.Pool
	done     atomic.Int64 // operations checked or released
	refused  atomic.Int64 // requests that timed out
	stalled  atomic.Int64 // events that did not complete in soakPatience
	wrong    atomic.Int64 // wrong values
	failures atomic.Int64
	inFlight chan struct{} // on out-of-order queues
}

// runSoak prints a line per minute and a summary, and fails if a check failed.
func runSoak(d, pace time.Duration) error {
	rt, err := syclobj.Open()
	if err != nil {
		return err
	}
	defer func() { _ = rt.Close() }()
	if !rt.HasSYCL() {
		return fmt.Errorf("a soak run needs a SYCL device: %w", rt.SYCLError())
	}
	device := rt.DefaultQueue()
	s := &soak{
		pace:     pace,
		pool:     memmgr.NewPool(memmgr.USM(device, syclobj.USMShared), memmgr.WithName("soak"), memmgr.WithLimit(soakLimit)),
		inFlight: make(chan struct{}, soakOutOfOrder),
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var workers sync.WaitGroup
	for i := range 8 {
		properties := syclobj.InOrder
		if i%4 == 3 {
			properties = syclobj.OutOfOrder
		}
		newQueue := func() (*syclobj.Queue, error) { return rt.NewQueue(device.Context(), device.Device(), properties) }
		workers.Go(func() { s.work(ctx, newQueue, rand.New(rand.NewPCG(uint64(i), 7))) })
	}
	warm := s.watch(ctx)
	workers.Wait()
	return s.finish(warm)
}

// watch prints the state each minute, and returns the resident memory after the first minute.
func (s *soak) watch(ctx context.Context) (warm int64) {
	start := time.Now()
	for {
		select {
		case <-ctx.Done():
			return warm
		case <-time.After(time.Minute):
		}
		stats := s.pool.Stats()
		if warm == 0 {
			warm = resident()
		}
		fmt.Printf("%5.0f s: %d done, %d refused for lack of memory, %d stalled, %d wrong, %d failed; in use %d MiB, reserved %d MiB, resident %d MiB, allocation p99 %v\n",
			time.Since(start).Seconds(), s.done.Load(), s.refused.Load(), s.stalled.Load(), s.wrong.Load(), s.failures.Load(),
			stats.AllocatedBytes.Current>>20, stats.ReservedBytes.Current>>20, resident()>>20, stats.AllocationLatency.P99)
	}
}

// errStall reports that the driver did not complete an event. Later work of that queue does not complete either, so
// the worker uses another queue.
var errStall = errors.New("the driver lost an event")

// work is one worker. It allocates, fills on the device, and checks or releases.
func (s *soak) work(ctx context.Context, newQueue func() (*syclobj.Queue, error), rng *rand.Rand) {
	for ctx.Err() == nil {
		q, err := newQueue()
		for err == nil && ctx.Err() == nil {
			err = s.piece(ctx, q, rng, uintptr(math.Exp2(8+14*rng.Float64())))
			s.done.Add(1)
			time.Sleep(s.pace)
		}
		switch {
		case errors.Is(err, errStall):
			s.stalled.Add(1)
		case err != nil && ctx.Err() == nil:
			s.failures.Add(1)
			fmt.Fprintln(os.Stderr, "membench: soak:", err)
		}
		if q != nil {
			_ = q.Close()
		}
	}
}

func (s *soak) piece(ctx context.Context, q *syclobj.Queue, rng *rand.Rand, size uintptr) error {
	patience, cancel := context.WithTimeout(ctx, soakPatience)
	defer cancel()
	b, err := memmgr.New(s.pool, memmgr.Request{Size: size, Queue: q, Context: patience})
	if errors.Is(err, memmgr.ErrOutOfMemory) {
		s.refused.Add(1)
		return nil
	}
	if err != nil {
		return err
	}
	defer b.Release()
	if q.Properties()&syclobj.InOrder == 0 {
		select {
		case s.inFlight <- struct{}{}:
			defer func() { <-s.inFlight }()
		case <-patience.Done():
			return nil
		}
	}
	value := byte(rng.Uint32())
	ev, err := q.Memset(b.Data(), value, size)
	if err != nil {
		return err
	}
	err = b.SetPending(q, ev)
	if cerr := ev.Close(); err == nil {
		err = cerr
	}
	if err != nil || rng.IntN(2) == 0 {
		return err // released with its work pending
	}
	switch err := b.WaitContext(patience); {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return errStall
	case err != nil:
		return err
	}
	mem := unsafe.Slice((*byte)(b.Data()), size)
	for _, at := range []uintptr{0, size / 2, size - 1, uintptr(rng.Uint64N(uint64(size)))} {
		if mem[at] != value {
			s.wrong.Add(1)
			return nil
		}
	}
	return nil
}

// finish closes the pool and reports whether all memory was freed.
func (s *soak) finish(warm int64) error {
	end := resident()
	memmgr.Flush()
	before := s.pool.Stats()
	leak := s.pool.Close()
	fmt.Printf("soak: %d pieces of work, %d stalled events, %d wrong values, %d failures; %d allocations, %d frees; %d blocks waiting at the end; resident %d MiB after a minute, %d MiB at the end; waits p50 %v p99 %v\n",
		s.done.Load(), s.stalled.Load(), s.wrong.Load(), s.failures.Load(), before.Allocation.Allocated, before.Allocation.Freed,
		before.Active.Current-before.Allocation.Current, warm>>20, end>>20, before.WaitLatency.P50, before.WaitLatency.P99)
	switch {
	case leak != nil:
		return leak
	case s.wrong.Load() != 0 || s.failures.Load() != 0 || before.Allocation.Current != 0:
		return errors.New("soak: something was lost, see above")
	}
	return nil
}

// resident returns the resident bytes of the process.
func resident() int64 {
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
