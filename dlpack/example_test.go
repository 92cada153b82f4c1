//go:build linux && cgo

package dlpack_test

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
)

// A Go slice goes to a C function that takes it over, sums it up and deletes
// it. The slice is pinned until then.
func ExampleExportSlice() {
	t, err := dlpack.ExportSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t)
	managed, versioned := t.Detach() // C's from here on
	fmt.Println(cpeer.Sum(managed, versioned))
	// Output:
	// float32[2,3] on kDLCPU:0
	// 21
}

// Memory from anywhere goes out with an owner: a C function that gives back one
// reference, or a Go function through OwnerFunc.
func ExampleExport() {
	memory := cpeer.Alloc(16 * 4)
	freed := make(chan bool)
	owner, err := dlpack.OwnerFunc(func() { cpeer.Free(memory); close(freed) })
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := dlpack.Export(dlpack.View{
		Data: memory, Device: dlpack.CPU, DataType: dlpack.Float32,
		Shape: []int64{4, 2}, Strides: []int64{4, 1}, // the left half of 4 x 4
	}, dlpack.ReadOnly, true, owner)
	if err != nil {
		owner.Release() // a failed export takes nothing
		fmt.Println(err)
		return
	}
	fmt.Println(t, t.Flags(), t.Version(), t.Strides())
	t.Release()
	<-freed
	// Output: float32[4,2] on kDLCPU:0 READ_ONLY 1.3 [4 1]
}

// What C hands out is taken over, checked and read in place.
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

func ExampleElements() {
	t, err := dlpack.ExportSlice([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer t.Release()
	e, err := dlpack.Elements[float32](t)
	if err != nil {
		fmt.Println(err)
		return
	}
	e.Set(40, 1, 1)
	for v := range e.All() {
		fmt.Print(v, " ")
	}
	// Output: 0 1 2 3 40 5
}
