//go:build linux && cgo

package dlpack_test

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
)

// Export memory with an owner: a C function, here one that counts, and its context. C takes over the
// tensor, sums it up and deletes it.
func ExampleExport() {
	memory := cpeer.Alloc(16 * 4)
	defer cpeer.Free(memory)
	copy(unsafe.Slice((*float32)(memory), 16), []float32{1, 2, 0, 0, 3, 4})
	owner := cpeer.NewOwner()
	defer owner.Free()
	t, err := dlpack.Export(&dlpack.View{
		Data: memory, Device: dlpack.CPU, DataType: dlpack.Float32,
		Shape: []int64{4, 2}, Strides: []int64{4, 1}, // the left half of 4 x 4
	}, dlpack.ReadOnly, true, owner.DLPack())
	if err != nil {
		fmt.Println(err) // a failed export takes nothing: the owner is still the caller's
		return
	}
	fmt.Println(t, t.Flags(), t.Version(), t.Strides())
	managed, versioned := t.Detach() // C's from here on
	fmt.Println(cpeer.Sum(managed, versioned), owner.Drops())
	// Output:
	// float32[4,2] on kDLCPU:0 READ_ONLY 1.3 [4 1]
	// 10 1
}

// Take over a tensor that C returned, check it and read it in place.
func ExampleImport() {
	values := cpeer.Alloc(3 * 8)
	defer cpeer.Free(values)
	copy(unsafe.Slice((*int64)(values), 3), []int64{10, 20, 30})
	managed := cpeer.Produce(cpeer.Fields{ // a legacy tensor of an older library
		Legacy: true, Data: values, Device: dlpack.CPU, DataType: dlpack.Int64, NDim: 1, Shape: []int64{3},
	})
	t, err := dlpack.Import(managed, false)
	if err != nil {
		dlpack.Delete(managed, false) // a failed import takes nothing
		fmt.Println(err)
		return
	}
	defer t.Release() // runs the producer's deleter
	s, err := dlpack.Slice[int64](t)
	fmt.Println(s, err)
	_, err = dlpack.Slice[float64](t)
	fmt.Println(errors.Is(err, dlpack.ErrDataType))
	// Output:
	// [10 20 30] <nil>
	// true
}
