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

// show converts, marks and prints the layout, or the error.
func show(name string, v dlpack.View, o cute.Options, marks ...func(*cute.Spec) error) {
	s, err := cute.NewSpec(v, o)
	for _, mark := range marks {
		if err == nil {
			err = mark(&s)
		}
	}
	if err != nil {
		fmt.Printf("%s: %v\n", name, err)
		return
	}
	fmt.Printf("%s: %s\n", name, s.Layout())
}

func layoutMark(leadingDim int) func(*cute.Spec) error {
	return func(s *cute.Spec) error { return s.MarkLayoutDynamic(leadingDim) }
}

func compactMark(mode int, order []int, divisibility int64) func(*cute.Spec) error {
	return func(s *cute.Spec) error { return s.MarkCompactShapeDynamic(mode, order, divisibility) }
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

// The examples t0 to t7 of CuTe DSL's documentation for mark_layout_dynamic.
func ExampleSpec_MarkLayoutDynamic() {
	a := view([]int64{8, 4, 16, 2}, []int64{2, 16, 64, 1})
	b := view([]int64{1, 4, 1, 32, 1}, []int64{1, 1, 1, 4, 1})
	c := view([]int64{2, 2}, []int64{8, 2})
	d := view([]int64{3, 4, 2, 5}, []int64{5, 0, 0, 1})

	show("t0", a, cute.Options{}, layoutMark(cute.Deduce))
	show("t1", b, cute.Options{}, layoutMark(0))
	show("t2", b, cute.Options{}, layoutMark(2))
	show("t3", c, cute.Options{}, layoutMark(cute.Deduce))
	show("t4", d, cute.Options{}, layoutMark(cute.Deduce))
	show("t5, older rule", b, cute.Options{}, layoutMark(cute.Deduce))
	show("t5, newer rule", b, cute.Options{Leading: cute.LeadingSkipSizeOne, Strides: cute.Strides64}, layoutMark(cute.Deduce))
	show("t6", a, cute.Options{}, layoutMark(1))
	show("t7", b, cute.Options{}, layoutMark(3))
	// Output:
	// t0: (?,?,?,?):(?,?,?,1)
	// t1: (?,?,?,?,?):(1,?,?,?,?)
	// t2: (?,?,?,?,?):(?,?,1,?,?)
	// t3: (?,?):(?,?)
	// t4: (?,?,?,?):(?,0,0,1)
	// t5, older rule: Can't deduce the leading dimension from layout, please specify the leading_dim explicitly.
	// t5, newer rule: (?,?,?,?,?):(?{i64},1,?{i64},?{i64},?{i64})
	// t6: Expected strides[leading_dim] == 1, but got 16.
	// t7: Expected strides[leading_dim] == 1, but got 4.
}

// The examples t0 to t12 of the documentation for mark_compact_shape_dynamic.
func ExampleSpec_MarkCompactShapeDynamic() {
	a := view([]int64{8, 4, 16, 2}, []int64{2, 16, 64, 1})
	b := view([]int64{1, 4, 1, 32, 1}, []int64{1, 1, 1, 4, 1})
	o := cute.Options{}

	show("t0", a, o, compactMark(0, nil, 2))
	show("t1", a, o, compactMark(1, nil, 2))
	show("t2", a, o, compactMark(1, nil, 2), compactMark(3, nil, 2))
	show("t3", b, o, compactMark(2, []int{3, 0, 2, 4, 1}, 1))
	show("t4", b, o, compactMark(2, []int{2, 3, 4, 0, 1}, 1))
	show("t5", a, o, compactMark(1, nil, 2), compactMark(3, nil, 2), compactMark(3, []int{0, 1, 2, 3}, 5))
	show("t6", a, o, compactMark(3, []int{0, 1, 2, 3}, 5))
	show("t7", b, o, compactMark(0, nil, 4))
	show("t8", b, o, compactMark(30, []int{3, 0, 2, 4, 1}, 5))
	show("t9", b, o, compactMark(3, []int{2, 1, 2, 3, 4}, 5))
	show("t10", b, o, compactMark(3, []int{0, 1, 2, 3, 4, 5}, 5))
	show("t11", b, o, compactMark(0, []int{3, 2, 4, 0, 1}, 4))
	show("t12", b, o, compactMark(0, []int{2, 1, 3, 0, 4}, 1))
	// Output:
	// t0: (?{div=2},4,16,2):(2,?{div=4},?{div=16},1)
	// t1: (8,?{div=2},16,2):(2,16,?{div=32},1)
	// t2: (8,?{div=2},16,?{div=2}):(?{div=2},?{div=16},?{div=32},1)
	// t3: (1,4,?,32,1):(0,1,4,?{div=4},0)
	// t4: (1,4,?,32,1):(0,1,128,4,0)
	// t5: The stride_order is not consistent with the last stride_order.
	// t6: The stride_order is not consistent with the deduced stride_order.
	// t7: The layout could not be deduced, please specify the stride_order explicitly.
	// t8: Expected mode value to be in range [0, 5), but got 30.
	// t9: Expected stride_order to contain all the dimensions of the tensor, but it doesn't contain 0.
	// t10: Expected stride_order to have 5 elements, but got 6.
	// t11: The shape(1) of mode(0) is not divisible by the divisibility(4).
	// t12: The stride_order is not consistent with the layout
}

// use_32bit_stride selects the printed form of dynamic strides.
func ExampleStrideWidth() {
	a := view([]int64{8, 4, 16, 2}, []int64{2, 16, 64, 1})
	show("unset", a, cute.Options{}, compactMark(0, nil, 2))
	show("false", a, cute.Options{Strides: cute.Strides64}, compactMark(0, nil, 2))
	show("true", a, cute.Options{Strides: cute.Strides32}, compactMark(0, nil, 2))
	huge := view([]int64{1e9, 1e9}, nil)
	show("true, too large", huge, cute.Options{Strides: cute.Strides32}, layoutMark(cute.Deduce))
	// Output:
	// unset: (?{div=2},4,16,2):(2,?{div=4},?{div=16},1)
	// false: (?{div=2},4,16,2):(2,?{i64 div=4},?{i64 div=16},1)
	// true: (?{div=2},4,16,2):(2,?{div=4},?{div=16},1)
	// true, too large: Layout in DLTensorWrapper has int32 overflow risk. Please set use_32bit_stride to False.
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
