//go:build linux && cgo

package usmarray_test

import (
	"fmt"
	"log"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Export an array as a DLPack tensor and import it, without a copy.
func ExampleArray_DLPack() {
	rt, err := syclobj.Open(syclobj.HostOnly())
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	a, err := usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{480, 640})
	if err != nil {
		log.Fatal(err)
	}
	t, err := a.DLPack()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t)
	b, err := usmarray.FromDLPack(rt, t) // takes the tensor
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release()
	fmt.Println(a.Pointer() == b.Pointer(), a.Buffer().Count() == 2)
	a.Release() // b keeps the memory
	// Output:
	// float32[480,640] on kDLCPU:0
	// true true
}

// A consumer of DLPack uses a Go slice without a copy. The slice is pinned until the consumer deletes the
// tensor.
func ExampleFromPinnedSlice() {
	a, err := usmarray.FromPinnedSlice([]float32{1, 2, 3, 4, 5, 6}, []int{2, 3})
	if err != nil {
		log.Fatal(err)
	}
	t, err := a.DLPack()
	a.Release() // the tensor keeps the memory
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t)
	// A C library would read the tensor of t.Detach() in this way.
	defer t.Release()
	values, err := dlpack.Slice[float32](t)
	fmt.Println(values, err)
	// Output:
	// float32[2,3] on kDLCPU:0
	// [1 2 3 4 5 6] <nil>
}
