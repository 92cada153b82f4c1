package usmarray_test

import (
	"errors"
	"fmt"
	"log"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Convert a DLPack tensor to a dictionary of the same memory. The tensor usually comes from another
// library; here an array exports it.
func ExampleDLPackToUSMInterface() {
	rt, a := sharedArray()
	defer rt.Close()
	tensor, err := a.DLPack()
	if err != nil {
		log.Fatal(err)
	}
	d, owner, err := usmarray.DLPackToUSMInterface(rt, tensor) // takes over the tensor
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.TypeStr, d.Shape, d.Data == uintptr(a.Pointer()))
	a.Release()
	// Pass d to the consumer. owner keeps the memory until the consumer is done.
	owner.Release()
	// On a machine with SYCL this prints: <f4 [3] true
}

// Convert a dictionary to a DLPack tensor of the same memory. The dictionary usually comes from another
// library; here an array exports it.
func ExampleUSMInterfaceToDLPack() {
	rt, a := sharedArray()
	defer rt.Close()
	d, err := a.USMInterface()
	if err != nil {
		log.Fatal(err)
	}
	// On success the tensor owns the array, and its deleter releases it.
	tensor, err := usmarray.USMInterfaceToDLPack(rt, &d, a.Release, usmarray.ExportOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tensor.DataType(), tensor.Shape(), uintptr(tensor.Data()) == d.Data)
	// Pass the pointer of tensor.Detach() to the consumer, or:
	tensor.Release()
	// On a machine with SYCL this prints: float32 [3] true
}

// sharedArray returns an array of three numbers in shared USM.
func sharedArray() (*syclobj.Runtime, *usmarray.Array) {
	rt, err := syclobj.Open(syclobj.RequireSYCL())
	if err != nil {
		log.Fatal(err)
	}
	memory, err := memmgr.Default(rt.DefaultQueue(), syclobj.USMShared)
	if err != nil {
		log.Fatal(err)
	}
	a, err := usmarray.FromSlice(memory, []float32{1, 2, 3}, nil)
	if err != nil {
		log.Fatal(err)
	}
	return rt, a
}

// TestConversionExamples runs the examples that need SYCL.
func TestConversionExamples(t *testing.T) {
	rt, err := syclobj.Open(syclobj.RequireSYCL())
	if errors.Is(err, syclobj.ErrNoSYCL) || errors.Is(err, syclobj.ErrNoDevice) || errors.Is(err, errors.ErrUnsupported) {
		testenv.Missing(t, err, testenv.SYCL)
	}
	require.NoError(t, err)
	defer rt.Close()
	require.Equal(t, "<f4 [3] true\n", testenv.Printed(t, ExampleDLPackToUSMInterface))
	require.Equal(t, "float32 [3] true\n", testenv.Printed(t, ExampleUSMInterfaceToDLPack))
}
