package cute_test

import (
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/cute"
)

// view describes float32 memory on the host that is never read.
func view(shape, strides []int64) dlpack.View {
	return dlpack.View{Shape: shape, Strides: strides, DataType: dlpack.Float32, Device: dlpack.CPU}
}

// A conversion has a static layout. The Spec has no address.
func ExampleNewSpec() {
	memory := make([]float32, 600)
	x := view([]int64{30, 20}, nil)
	x.Data = unsafe.Pointer(&memory[0])
	s, err := cute.NewSpec(x, cute.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Shape(), s.Stride(), s.MemSpace(), s.ElementType())
	// Output: [30 20] [20 1] generic Float32
}

// Some of the examples of CuTe DSL's documentation for mark_layout_dynamic.
func ExampleSpec_MarkLayoutDynamic() {
	s, err := cute.NewSpec(view([]int64{8, 4, 16, 2}, []int64{2, 16, 64, 1}), cute.Options{})
	fmt.Println(err, s.MarkLayoutDynamic(1))
	fmt.Println(s.MarkLayoutDynamic(cute.Deduce), s.Layout())
	// Output:
	// <nil> Expected strides[leading_dim] == 1, but got 16.
	// <nil> (?,?,?,?):(?,?,?,1)
}

// Some of the examples of the documentation for mark_compact_shape_dynamic.
func ExampleSpec_MarkCompactShapeDynamic() {
	s, err := cute.NewSpec(view([]int64{8, 4, 16, 2}, []int64{2, 16, 64, 1}), cute.Options{})
	fmt.Println(err, s.MarkCompactShapeDynamic(1, nil, 2), s.Layout())
	fmt.Println(s.MarkCompactShapeDynamic(3, nil, 2), s.Layout())
	fmt.Println(s.MarkCompactShapeDynamic(3, []int{0, 1, 2, 3}, 5))
	// Output:
	// <nil> <nil> (8,?{div=2},16,2):(2,16,?{div=32},1)
	// <nil> (8,?{div=2},16,?{div=2}):(?{div=2},?{div=16},?{div=32},1)
	// The stride_order is not consistent with the last stride_order.
}

// A kernel is compiled once for each key.
func ExampleSpec_Key() {
	kernels := map[cute.Key]string{}
	for _, rows := range []int64{30, 60, 90} {
		s, err := cute.NewSpec(view([]int64{rows, 20}, nil), cute.Options{AssumedAlign: 16})
		if err == nil {
			err = s.MarkLayoutDynamic(cute.Deduce)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		kernel, ok := kernels[s.Key()]
		if !ok {
			fmt.Println("compiling for", s.Key())
			kernel = "kernel"
			kernels[s.Key()] = kernel
		}
		fmt.Println(rows, kernel)
	}
	// Output:
	// compiling for Float32@generic align=16 o (?,?):(?,1)
	// 30 kernel
	// 60 kernel
	// 90 kernel
}
