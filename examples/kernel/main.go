// Command kernel computes on a SYCL device from Go alone: it compiles an OpenCL C kernel, allocates device
// memory, launches the kernel several times, reads the result, and compares it with that of Go code.
//
//	go run ./examples/kernel
//
// It needs a SYCL device. `pip install dpctl intel-opencl-rt` makes a device of the CPU; Python is not
// needed at run time. Without a device the program prints the reason and a remedy, and exits with code 3.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

//go:embed smooth.cl
var source string

// exitNoDevice is the exit code if there is no SYCL device.
const exitNoDevice = 3

const (
	values = 1 << 20
	rounds = 8
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("kernel: ")
	err := run(os.Stdout)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syclobj.ErrNoSYCL) {
		log.Print(err)
		os.Exit(exitNoDevice)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	rt, err := syclobj.Open()
	if err != nil {
		return err
	}
	defer rt.Close()
	queue := rt.DefaultQueue()
	if queue.IsHost() {
		return fmt.Errorf("the host backend runs no kernels: a SYCL device is needed (`pip install dpctl intel-opencl-rt` makes one of the CPU): %w", missing(rt))
	}
	fmt.Fprintf(w, "device: %s\n", queue.Device())

	program, err := queue.BuildOpenCL(source, "")
	if err != nil {
		return err // contains the compiler's log
	}
	defer program.Close()
	smooth, err := program.Kernel("smooth")
	if err != nil {
		return err
	}
	defer smooth.Close()
	fmt.Fprintf(w, "kernel: smooth%v\n", smooth.Params())

	start := make([]float32, values)
	for i := range start {
		start[i] = float32(i % 100)
	}
	got, err := onDevice(queue, smooth, start)
	if err != nil {
		return err
	}
	return compare(w, got, inGo(start))
}

// missing returns the reason why there is no device.
func missing(rt *syclobj.Runtime) error {
	if err := rt.SYCLError(); err != nil {
		return err
	}
	return errors.ErrUnsupported
}

// onDevice launches the kernel repeatedly and exchanges its two arrays of device memory each time. It waits
// only when it reads the result: launches that share arrays run in order.
func onDevice(queue *syclobj.Queue, smooth *syclobj.Kernel, start []float32) ([]float32, error) {
	device, err := memmgr.Default(queue, syclobj.USMDevice)
	if err != nil {
		return nil, err
	}
	from, err := usmarray.FromSlice(device, start, nil)
	if err != nil {
		return nil, err
	}
	defer from.Release()
	to, err := usmarray.New(device, usmarray.Float32, []int{values})
	if err != nil {
		return nil, err
	}
	defer to.Release()
	for a, b, i := from, to, 0; i < rounds; a, b, i = b, a, i+1 {
		err := kernel.Launch(queue, smooth, kernel.Over(values), kernel.Read(a), kernel.ReadWrite(b), kernel.Scalar(int32(values)))
		if err != nil {
			return nil, err
		}
	}
	return usmarray.ToSlice[float32](from) // the result of an even number of rounds
}

// inGo computes the same in Go.
func inGo(start []float32) []float32 {
	from, to := append([]float32(nil), start...), make([]float32, len(start))
	for range rounds {
		for i := range from {
			to[i] = (from[max(i-1, 0)] + from[i] + from[min(i+1, len(from)-1)]) / 3
		}
		from, to = to, from
	}
	return from
}

func compare(w io.Writer, got, want []float32) error {
	most := 0.0
	for i := range want {
		most = max(most, math.Abs(float64(got[i]-want[i])))
	}
	if most > 1e-3 || math.IsNaN(most) {
		return fmt.Errorf("the device's result differs from Go's by %g", most)
	}
	fmt.Fprintf(w, "result: %d values after %d launches, as in Go (greatest difference %.1g)\n", len(got), rounds, most)
	return nil
}
