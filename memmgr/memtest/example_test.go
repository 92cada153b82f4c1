package memtest_test

import (
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// A device of 2 MiB. The second allocation exceeds it. Memory that is freed with pending work stays in
// use until the test completes the work.
func ExampleNewSimulated() {
	device := memtest.NewSimulated(memtest.Capacity(2 << 20))
	block, err := device.Allocate(memmgr.Request{Size: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = device.Allocate(memmgr.Request{Size: 2 << 20})
	fmt.Println(errors.Is(err, memmgr.ErrOutOfMemory))

	const queue = 1
	work := device.Submit(queue)
	block.Event = device.CopyEvent(work)
	device.Free(block)
	fmt.Println(device.InUse())
	device.Complete(work)
	device.ReleaseEvent(work)
	memmgr.Flush()
	fmt.Println(device.InUse())
	// Output:
	// true
	// 1 1048576
	// 0 0
}
