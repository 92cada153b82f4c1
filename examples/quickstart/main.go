// Command quickstart is the Go half of the bridge alone: it allocates an array
// on whatever backend the machine has, works on it through Go slices and views,
// describes it as a __sycl_usm_array_interface__ dictionary, hands it out as a
// DLPack tensor and takes that back, all on one piece of memory.
//
//	go run ./examples/quickstart
//
// It needs no Python and nothing installed: without SYCL the host backend
// serves, and the program says what would be there with it. examples/kernel goes on from
// here: it computes on the device.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("quickstart: ")
	if err := run(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer) error {
	rt, err := syclobj.Open() // SYCL when found, else the host backend alone
	if err != nil {
		return err
	}
	defer rt.Close()
	queue := rt.DefaultQueue()
	fmt.Fprintf(w, "device: %s\n", queue.Device())
	if !rt.HasSYCL() {
		fmt.Fprintf(w, "no SYCL, so the host backend serves: %v\n", rt.SYCLError())
	}

	// Shared memory: the host reads and writes it, and so does the device.
	shared, err := memmgr.Default(queue, syclobj.USMShared)
	if err != nil {
		return err
	}
	a, err := usmarray.New(shared, usmarray.Float32, []int{480, 640})
	if err != nil {
		return err
	}
	defer a.Release()
	fmt.Fprintf(w, "array:  float32 %v at %p, %d bytes\n", a.Shape(), a.Pointer(), a.NBytes())

	if err := work(w, a); err != nil {
		return err
	}
	if err := describe(w, a); err != nil {
		return err
	}
	return exchange(w, rt, a)
}

// work fills the array through a Go slice and looks at it through views.
func work(w io.Writer, a *usmarray.Array) error {
	err := usmarray.View(a, func(values []float32) error { // the memory itself, not a copy
		for i := range values {
			values[i] = float32(i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	corner, err := a.Index(usmarray.IndexTo(4), usmarray.IndexTo(640).By(160)) // a[:4, :640:160]
	if err != nil {
		return err
	}
	turned, err := corner.Transpose()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "a[:4, :640:160].T is a view with strides %v:\n%v\n", turned.Strides(), turned)
	return nil
}

// describe shows the dictionary that SYCL programs in Python read.
func describe(w io.Writer, a *usmarray.Array) error {
	d, err := a.USMInterface()
	if errors.Is(err, usmarray.ErrNotUSM) {
		fmt.Fprintln(w, "__sycl_usm_array_interface__: none, because memory of the host backend is no USM")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "__sycl_usm_array_interface__:", d)
	return nil
}

// exchange gives the array away as a DLPack tensor and takes it back: the same
// memory under two owners, of which the last to let go frees it.
func exchange(w io.Writer, rt *syclobj.Runtime, a *usmarray.Array) error {
	t, err := a.DLPack()
	if errors.Is(err, errors.ErrUnsupported) {
		fmt.Fprintln(w, "DLPack: none,", err)
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "DLPack: %s\n", t)
	b, err := usmarray.FromDLPack(rt, t)
	if err != nil {
		t.Release() // still ours when it was not taken
		return err
	}
	defer b.Release()
	if b.Pointer() != a.Pointer() {
		return fmt.Errorf("the tensor came back at %p, it left at %p: something copied", b.Pointer(), a.Pointer())
	}
	fmt.Fprintf(w, "back:   %p, the same memory, no byte copied\n", b.Pointer())
	return nil
}
