package kernel_test

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

const (
	threadsTime = 4 * time.Second
	stallTime   = 30 * time.Second // a round takes milliseconds
)

// Threads that wait for work on out-of-order queues hang in Intel's OpenCL CPU driver if its queues are
// out-of-order too.
func TestThreadsOnOutOfOrderQueues(t *testing.T) {
	rt, q := testsycl.Need(t)
	k := take(t, build(t, q, source), "scale")
	shared, err := rt.NewQueue(q.Context(), q.Device(), syclobj.OutOfOrder)
	require.NoError(t, err)
	defer func() { require.NoError(t, shared.Close()) }()
	require.Equal(t, syclobj.OutOfOrder, shared.Properties())

	var rounds atomic.Int64
	stop := watch(&rounds)
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), threadsTime)
	defer cancel()
	var threads sync.WaitGroup
	for i := range 8 {
		threads.Go(func() {
			own := shared
			if i%2 == 0 {
				made, err := rt.NewQueue(q.Context(), q.Device(), syclobj.OutOfOrder)
				if !ok(t, err) {
					return
				}
				defer func() { ok(t, made.Close()) }()
				own = made
			}
			for round := i; ctx.Err() == nil; round++ {
				if !ok(t, useArrays(rt, own, k, round)) {
					return
				}
				rounds.Add(1)
			}
		})
	}
	threads.Wait()
	t.Logf("%d rounds", rounds.Load())
}

// ok reports an error of another goroutine than the test's.
func ok(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// watch ends the process with the stacks of all goroutines if the count does not change for stallTime.
func watch(count *atomic.Int64) (stop func()) {
	done := make(chan struct{})
	go func() {
		last, since := int64(-1), time.Now()
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			if now := count.Load(); now != last {
				last, since = now, time.Now()
			}
			if time.Since(since) > stallTime {
				fmt.Fprintln(os.Stderr, "stalled after", last, "rounds")
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				os.Exit(2)
			}
		}
	}()
	return func() { close(done) }
}

// useArrays launches a kernel and waits for it in one of four ways.
func useArrays(rt *syclobj.Runtime, q *syclobj.Queue, k *syclobj.Kernel, way int) error {
	const n = 1000
	pool, err := memmgr.Default(q, syclobj.USMShared)
	if err != nil {
		return err
	}
	x, err := usmarray.Full(pool, usmarray.Float32, []int{n}, float32(way%1000+1))
	if err != nil {
		return err
	}
	defer x.Release()
	y, err := usmarray.Zeros(pool, usmarray.Float32, []int{n})
	if err != nil {
		return err
	}
	defer y.Release()
	e, err := kernel.Start(q, k, kernel.Over(n), kernel.Read(x), kernel.ReadWrite(y), kernel.Scalar(float32(2)))
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	switch way % 4 {
	case 0:
		err = e.Wait(context.Background())
	case 1:
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = e.Wait(ctx)
	case 2:
		err = q.Wait(context.Background())
	case 3:
		err = exchange(rt, y)
	}
	if err != nil {
		return err
	}
	got, err := usmarray.ToSlice[float32](y)
	if err != nil {
		return err
	}
	if want := 2 * float32(way%1000+1); got[0] != want || got[n-1] != want {
		return fmt.Errorf("round %d: %v and %v instead of %v", way, got[0], got[n-1], want)
	}
	return nil
}

// exchange exports an array and waits for the work through the array that it imports.
func exchange(rt *syclobj.Runtime, a *usmarray.Array) error {
	tensor, err := a.DLPack()
	if err != nil {
		return err
	}
	b, err := usmarray.FromDLPack(rt, tensor)
	if err != nil {
		tensor.Release()
		return err
	}
	defer b.Release()
	return b.Wait()
}
