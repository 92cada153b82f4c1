package kernel_test

import (
	"fmt"
	"log"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// Compile a kernel of OpenCL C and launch it on an array in device memory.
func Example() {
	rt, err := syclobj.Open(syclobj.RequireSYCL())
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	queue := rt.DefaultQueue()
	program, err := queue.BuildOpenCL("kernel void scale(global float *x, float f) { x[get_global_id(0)] *= f; }", "")
	if err != nil {
		log.Fatal(err) // with the compiler's log
	}
	defer program.Close()
	scale, err := program.Kernel("scale")
	if err != nil {
		log.Fatal(err)
	}
	defer scale.Close()
	memory, err := memmgr.Default(queue, syclobj.USMDevice)
	if err != nil {
		log.Fatal(err)
	}
	x, err := usmarray.FromSlice(memory, []float32{1, 2, 3}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer x.Release()
	if err := kernel.Launch(queue, scale, kernel.Over(x.Size()), kernel.ReadWrite(x), kernel.Scalar(float32(2))); err != nil {
		log.Fatal(err)
	}
	values, err := usmarray.ToSlice[float32](x) // waits for the kernel
	fmt.Println(values, err)
	// On a machine with SYCL this prints: [2 4 6] <nil>
}

// TestExample runs the example, which needs SYCL.
func TestExample(t *testing.T) {
	testsycl.Need(t)
	require.Equal(t, "[2 4 6] <nil>\n", testenv.Printed(t, Example))
}
