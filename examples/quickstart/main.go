// Command quickstart shows the Go part of the library: it allocates an array on the machine's backend,
// accesses it through Go slices and views, describes it as a __sycl_usm_array_interface__ dictionary,
// exports it as a DLPack tensor and imports that, all in the same memory.
//
//	go run ./examples/quickstart
//
// It needs neither Python nor SYCL: without SYCL it uses the host backend and prints the reason.
// examples/kernel is the next step: it computes on the device.
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
	rt, err := syclobj.Open() // SYCL if it is found, else the host backend only
	if err != nil {
		return err
	}
	defer rt.Close()
	queue := rt.DefaultQueue()
	fmt.Fprintf(w, "device: %s\n", queue.Device())
	if !rt.HasSYCL() {
		fmt.Fprintf(w, "no SYCL; using the host backend: %v\n", rt.SYCLError())
	}

	// Shared memory: host and device can read and write it.
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

// work fills the array through a Go slice and prints a view of it.
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

// describe prints the dictionary that SYCL programs in Python read.
func describe(w io.Writer, a *usmarray.Array) error {
	d, err := a.USMInterface()
	if errors.Is(err, usmarray.ErrNotUSM) {
		fmt.Fprintln(w, "__sycl_usm_array_interface__: none, because memory of the host backend is not USM")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "__sycl_usm_array_interface__:", d)
	return nil
}

// exchange exports the array as a DLPack tensor and imports it. Both arrays own the same memory, and the
// last Release frees it.
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
		t.Release() // a failed import leaves the tensor to the caller
		return err
	}
	defer b.Release()
	if b.Pointer() != a.Pointer() {
		return fmt.Errorf("the imported array is at %p and the exported one at %p: the memory was copied", b.Pointer(), a.Pointer())
	}
	fmt.Fprintf(w, "back:   %p, the same memory, no byte copied\n", b.Pointer())
	return nil
}
