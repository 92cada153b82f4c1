package usmarray_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Arrays work on plain host memory with nothing installed.
func Example() {
	a, err := usmarray.Arange[float32](memmgr.Host(), 0, 0.5, 12)
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release()
	m, _ := a.Reshape(3, 4)
	v, _ := m.Index(usmarray.All.By(-1), usmarray.IndexRange(1, 3)) // m[::-1, 1:3]
	fmt.Println(m)
	fmt.Println(v)
	// Output:
	// [[0.  0.5 1.  1.5]
	//  [2.  2.5 3.  3.5]
	//  [4.  4.5 5.  5.5]]
	// [[4.5 5. ]
	//  [2.5 3. ]
	//  [0.5 1. ]]
}

// A view borrows; Retain makes an owner of it.
func ExampleArray_Retain() {
	a, err := usmarray.FromSlice(memmgr.Host(), []int32{1, 2, 3, 4}, nil)
	if err != nil {
		log.Fatal(err)
	}
	tail, _ := a.Index(usmarray.IndexFrom(2))
	keep := tail.Retain()
	a.Release()
	fmt.Println(keep)
	keep.Release()
	fmt.Println(keep.Valid(), tail.Valid())
	// Output:
	// [3 4]
	// false false
}

// View passes the elements to a function and keeps the memory alive meanwhile.
func ExampleView() {
	a, err := usmarray.Zeros(memmgr.Host(), usmarray.Int64, []int{2, 2})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release()
	err = usmarray.View(a, func(v []int64) error {
		for i := range v {
			v[i] = int64(i * i)
		}
		return nil
	})
	fmt.Println(a, err)
	// Output:
	// [[0 1]
	//  [4 9]] <nil>
}

// A dictionary is checked before its pointer is used.
func ExampleUSMInterface_Check() {
	d := usmarray.USMInterface{
		Shape: []int{1 << 62, 8}, TypeStr: "<f4", Data: 0x7f0000000000, Version: 1,
		SyclObj: usmarray.SyclObj{Filter: "opencl:cpu:0"},
	}
	_, err := d.Check()
	fmt.Println(errors.Is(err, usmarray.ErrInterface))
	fmt.Println(err)
	// Output:
	// true
	// usmarray: Check: shape: shape (4611686018427387904,8) has more elements than an int can count
}

// The errors of views contain a hint.
func ExampleArray_Reshape() {
	a, err := usmarray.Zeros(memmgr.Host(), usmarray.Float64, []int{3, 4})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release()
	t, _ := a.Transpose()
	_, err = t.Reshape(12)
	fmt.Println(err)
	// Output:
	// usmarray: Reshape: shape (4,3) with strides (1,4) cannot become (12,) without moving elements; copy it first
}
