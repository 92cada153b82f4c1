//go:build cgo && linux

package pymodule_test

import (
	"fmt"
	"log"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// The examples need a Python with a shared library: TestExamples runs them where
// there is one.

// NumPy writes into memory that Go allocated.
func ExampleToPython() {
	if err := pymodule.Register(); err != nil { // before Python starts
		log.Fatal(err)
	}
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	a, err := usmarray.FromSlice(memmgr.Host(), []float32{1, 2, 3, 4, 5, 6}, []int{2, 3})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release() // Python keeps the memory by itself
	x, err := pymodule.ToPython(a)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Release()
	out, err := py.Run("import numpy\nn = numpy.asarray(x)\nn[0] *= 10\ntotal = float(n.sum())", python.Vars{"x": x}, "total")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out["total"])
	fmt.Println(a)
	// prints:
	// 75
	// [[10. 20. 30.]
	//  [ 4.  5.  6.]]
}

// Go reads memory that NumPy allocated, a view with a negative stride.
func ExampleFromPython() {
	if err := pymodule.Register(); err != nil {
		log.Fatal(err)
	}
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	x, err := py.Eval("__import__('numpy').arange(6, dtype='int32').reshape(2, 3)[:, ::-1]", nil)
	if err != nil {
		log.Fatal(err)
	}
	a, err := pymodule.FromPython(x)
	x.Release() // the array keeps what it needs
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release()
	fmt.Println(a.Shape(), a.Strides())
	fmt.Println(a)
	// prints:
	// [2 3] [3 -1]
	// [[2 1 0]
	//  [5 4 3]]
}

// NumPy sums a slice of Go's, and writes into it, without a copy: a list of these numbers
// would take a second.
func ExampleToPython_slice() {
	if err := pymodule.Register(); err != nil { // before Python starts
		log.Fatal(err)
	}
	py, err := python.Start()
	if err != nil {
		log.Fatal(err)
	}
	numbers := make([]float64, 1_000_000)
	for i := range numbers {
		numbers[i] = float64(i)
	}
	a, err := usmarray.FromPinnedSlice(numbers, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release() // Python keeps the slice by itself
	x, err := pymodule.ToPython(a)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Release()
	out, err := py.Run("import numpy\nn = numpy.asarray(memoryview(x))\ntotal = float(n.sum())\nn[:] = -n\ndel n", python.Vars{"x": x}, "total")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(out["total"], numbers[1:4])
	// prints:
	// 4.999995e+11 [-1 -2 -3]
}
