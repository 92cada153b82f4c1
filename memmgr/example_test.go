package memmgr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

// A pool over memory of the default device, or over host memory without SYCL.
func Example() {
	rt, err := syclobj.Open(syclobj.HostOnly())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	pool := memmgr.NewPool(memmgr.USM(rt.DefaultQueue(), syclobj.USMShared))
	defer pool.Close()

	b, err := memmgr.New(pool, memmgr.Request{Size: 4 * 1000, Tag: "samples"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Release()
	if err := memmgr.CopyIn(b, 0, []float32{1, 2, 3}); err != nil {
		fmt.Println(err)
	}
	back := make([]float32, 3)
	if err := memmgr.CopyOut(b, 0, back); err != nil {
		fmt.Println(err)
	}
	fmt.Println(back, b.Requested(), b.Place())
	// Output: [1 2 3] 4000 host memory
}

// Resources wrap one another. As finds an interface that one of them implements.
func ExampleAs() {
	pool := memmgr.NewPool(memtest.NewSimulated())
	defer pool.Close()
	r := memmgr.NewLimit(pool, 1<<20)
	b, err := memmgr.New(r, memmgr.Request{Size: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	if p, ok := memmgr.As[*memmgr.Pool](r); ok {
		stats := p.Stats()
		fmt.Println(stats.AllocatedBytes.Current, stats.Allocation.Peak)
	}
	b.Release()
	// Output: 1024 1
}

// A request with a context waits for room until the context ends.
func ExampleRequest_context() {
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(4<<20))
	defer pool.Close()
	held, err := memmgr.New(pool, memmgr.Request{Size: 4 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = memmgr.New(pool, memmgr.Request{Size: 1 << 20, Context: ctx})
	fmt.Println(errors.Is(err, memmgr.ErrOutOfMemory), errors.Is(err, context.DeadlineExceeded))

	time.AfterFunc(time.Millisecond, held.Release)
	b, err := memmgr.New(pool, memmgr.Request{Size: 1 << 20, Context: context.Background()})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.Requested())
	b.Release()
	// Output:
	// true true
	// 1048576
}

// Tenants share a pool, each with an account and a limit of its own.
func ExamplePool_NewTenant() {
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(64<<20))
	defer pool.Close()
	tenant, err := pool.NewTenant("batch jobs", memmgr.TenantOptions{Hard: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tenant.Close()
	b, err := memmgr.New(tenant, memmgr.Request{Size: 1 << 20, Tag: "weights"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = memmgr.New(tenant, memmgr.Request{Size: 1})
	var oom *memmgr.OutOfMemoryError
	if errors.As(err, &oom) {
		fmt.Println(oom.Tenant, oom.Limit, oom.Holders[0].Tag)
	}
	b.Release()
	fmt.Println(tenant.Stats().ActiveBytes.Current)
	// Output:
	// batch jobs 1048576 weights
	// 0
}

// The order of shutdown: buffers and arrays, memory that waits for a device, pools, their upstreams,
// and the runtime last. Each Close reports memory that is still in use.
func Example_shutdown() {
	rt, err := syclobj.Open(syclobj.HostOnly())
	if err != nil {
		fmt.Println(err)
		return
	}
	upstream := memmgr.USM(rt.DefaultQueue(), syclobj.USMShared)
	pool := memmgr.NewPool(upstream, memmgr.WithName("work"))
	kept, err := memmgr.New(pool, memmgr.Request{Size: 4000, Tag: "kept too long"})
	if err != nil {
		fmt.Println(err)
		return
	}

	memmgr.Flush()     // frees memory that C dropped and memory of pending work
	err = pool.Close() // kept stays valid, and Close returns an error for it
	var leak *memmgr.LeakError
	if errors.As(err, &leak) {
		fmt.Println(len(leak.Buffers), leak.Buffers[0].Tag)
	}
	kept.Release()
	if c, ok := upstream.(io.Closer); ok { // the host's is not
		err = multierr.Append(err, c.Close())
	}
	err = multierr.Combine(err, memmgr.CloseDefaults(), rt.Close())
	fmt.Println(len(multierr.Errors(err)))
	// Output:
	// 1 kept too long
	// 1
}

func ExampleOutOfMemoryError() {
	r := memmgr.NewLimit(memtest.NewSimulated(), 1<<20)
	_, err := memmgr.New(r, memmgr.Request{Size: 2 << 20, Tag: "weights"})
	var oom *memmgr.OutOfMemoryError
	if errors.As(err, &oom) {
		fmt.Println(oom.Request.Tag, oom.Rounded, oom.Limit)
	}
	// Output: weights 2097152 1048576
}

func ExamplePool_Snapshot() {
	pool := memmgr.NewPool(memtest.NewSimulated(), memmgr.WithName("example"))
	b, err := memmgr.New(pool, memmgr.Request{Size: 1 << 20, Tag: "weights"})
	if err != nil {
		fmt.Println(err)
		return
	}
	s := pool.Snapshot()
	for _, seg := range s.Segments {
		for _, block := range seg.Blocks {
			fmt.Println(block.State, block.Size, block.Tag)
		}
	}
	b.Release()
	if err := pool.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// active_allocated 1048576 weights
	// inactive 1048576
}
