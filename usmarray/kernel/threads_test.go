package kernel_test

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

const (
	threadsTime = 2 * time.Second
	stallTime   = 30 * time.Second // a round takes milliseconds
)

// Threads that wait for work on out-of-order queues hang in Intel's OpenCL CPU driver if its queues are
// out-of-order too.
func TestThreadsOnOutOfOrderQueues(t *testing.T) {
	rt, q := testsycl.Need(t)
	k := take(t, build(t, q, source), "scale")
	shared := testenv.Opened(rt.NewQueue(q.Context(), q.Device(), syclobj.OutOfOrder))(t)
	require.Equal(t, syclobj.OutOfOrder, shared.Properties())
	stalled := time.AfterFunc(threadsTime+stallTime, func() {
		debug.SetTraceback("all")
		panic("a round does not end")
	})
	defer stalled.Stop()
	var rounds atomic.Int64
	end := time.Now().Add(threadsTime)
	testenv.Together(t, 8, func(i int) error {
		own := shared
		if i%2 == 0 {
			var err error
			if own, err = rt.NewQueue(q.Context(), q.Device(), syclobj.OutOfOrder); err != nil {
				return err
			}
			defer func() { _ = own.Close() }()
		}
		for round := i; time.Now().Before(end); round++ {
			if err := useArrays(rt, own, k, round); err != nil {
				return err
			}
			rounds.Add(1)
		}
		return nil
	})
	t.Logf("%d rounds", rounds.Load())
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
