package memmgr_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
)

// A pool over memory of the default device, or of the host when there is no
// SYCL.
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

// Resources wrap one another; abilities are found by type.
func ExampleAs() {
	r := memmgr.NewLimit(memmgr.NewStatistics(memtest.NewSimulated()), 1<<20)
	b, err := memmgr.New(r, memmgr.Request{Size: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	if s, ok := memmgr.As[memmgr.StatsReporter](r); ok {
		stats := s.Stats()
		fmt.Println(stats.AllocatedBytes.Current, stats.Allocation.Peak)
	}
	b.Release()
	// Output: 1000 1
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
