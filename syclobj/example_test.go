package syclobj_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// The same code runs on SYCL and on the host backend; here on the latter, so
// that it runs anywhere.
func Example() {
	rt, err := syclobj.Open(syclobj.HostOnly())
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()

	q := rt.DefaultQueue()
	p, err := q.Alloc(syclobj.USMShared, 16, 0)
	if err != nil {
		log.Fatal(err)
	}

	e, err := q.Fill(p, []byte{1, 2, 3, 4}, 4)
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 6)
	if err := q.Read(got, unsafe.Add(p, 2)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(q.Device().FilterString(), got)
	if err := syclobj.Free(p); err != nil {
		log.Fatal(err)
	}
	// Output: host [3 4 1 2 3 4]
}

// A filter string names devices in order of preference.
func ExampleRuntime_Device() {
	rt, err := syclobj.Open(syclobj.HostOnly())
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	_, err = rt.Device("gpu,cpu:0")
	fmt.Println(errors.Is(err, syclobj.ErrNoSYCL))
	_, err = rt.Device("cpu:opencl")
	fmt.Println(err)
	// Output:
	// true
	// syclobj: Runtime.Device: filter string "cpu:opencl": "cpu:opencl" has its fields repeated or out of order; a filter is host, or a comma list of backend:type:number with at least one of the three, such as opencl:cpu:0, gpu or level_zero:gpu:1: an argument has an impossible value
}

// A queue on each tile of a GPU, and how long work on it took by the device's own
// clock.
func ExampleDevice_SubDevices() {
	rt, err := syclobj.Open(syclobj.RequireSYCL(syclobj.BackendLevelZero))
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	gpu, err := rt.Device("level_zero:gpu")
	if err != nil {
		log.Fatal(err)
	}
	tiles, err := gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNextPartitionable})
	if err != nil {
		log.Fatal(err)
	}
	for _, tile := range tiles {
		defer tile.Close()
		q, err := rt.NewQueue(nil, tile, syclobj.InOrder|syclobj.Profiling)
		if err != nil {
			log.Fatal(err)
		}
		defer q.Close()
		p, err := q.Alloc(syclobj.USMDevice, 1<<20, 0)
		if err != nil {
			log.Fatal(err)
		}
		e, err := q.Memset(p, 0, 1<<20)
		if err != nil {
			log.Fatal(err)
		}
		times, err := e.Times()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(tile, times.Ended-times.Started)
		if err := syclobj.Free(p); err != nil {
			log.Fatal(err)
		}
	}
}

// Where the library was searched, and which devices exist.
func ExampleRuntime_Attempts() {
	rt, err := syclobj.Open(syclobj.HostOnly())
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	for _, a := range rt.Attempts() {
		fmt.Printf("%s: %v\n", a.Source, a.Err)
	}
	for _, d := range rt.Devices() {
		id, err := d.DLPackID()
		fmt.Println(d.FilterString(), id, err)
	}
	// Output:
	// off: syclobj: libDPCTLSyclInterface.so: SYCL is switched off; open without HostOnly, and with USMBRIDGE_SYCL unset or a path
	// host 0 <nil>
}

func ExamplePlace() {
	p := syclobj.HostPlace()
	deviceType, id, err := p.DLPackDevice()
	fmt.Println(p, p.HostReadable(), deviceType, id, err)
	// Output: host memory true 1 0 <nil>
}
