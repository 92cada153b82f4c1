//go:build cgo && linux

package memmgr

/*
#cgo CFLAGS: -I${SRCDIR}/../syclobj
#include "usmb_sycl.h"
*/
import "C"

import (
	"bytes"
	"fmt"

	"github.com/usmbridge/usmbridge/syclobj"
)

// tryDiscard finds out whether pages of this resource's memory can be given back.
// The OpenCL device of a CPU serves USM from private memory of the process; no
// other device does, and memory that a device maps must never lose its pages. Even
// there it is tried: pages go, the runtime still tells the kind, and copies on the
// queue work in the memory as before.
func (r *usmResource) tryDiscard() error {
	if r.err != nil {
		return r.err
	}
	device, err := r.place.Device()
	if err != nil {
		return err
	}
	if info := device.Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
		return noPages("memory of %s is not memory of the process; only an OpenCL CPU device's is", r.place)
	}
	q, err := r.place.Queue()
	if err != nil {
		return err
	}
	const pages = 16
	size := pages * pageSize
	address, err := usmAlloc(r.place, size, pageSize)
	if err != nil {
		return err
	}
	defer func() { _ = usmFree(r.place, address) }() // it was allocated above
	at := foreignPointer(address)
	sample := bytes.Repeat([]byte("USM with pages. "), int(size)/16)
	if err := q.Write(at, sample); err != nil {
		return err
	}
	if err := discardPages(address, size); err != nil {
		return err
	}
	if n := residentBytes(address, size); n != 0 {
		return noPages("%d of %d bytes stayed in memory when their pages were given back", n, size)
	}
	back := make([]byte, size)
	if err := q.Read(back, at); err != nil {
		return fmt.Errorf("reading memory whose pages were given back: %w", err)
	}
	if err := q.Write(at, sample); err != nil {
		return fmt.Errorf("writing memory whose pages were given back: %w", err)
	}
	if err := q.Read(back, at); err != nil {
		return err
	}
	if !bytes.Equal(back, sample) {
		return noPages("memory whose pages were given back does not hold what is written to it")
	}
	return r.stillUSM(address, size)
}

// stillUSM asks the runtime whether it knows the memory as before.
func (r *usmResource) stillUSM(address, size uintptr) error {
	own := (*C.usmb_place)(r.place.Ref())
	var found *C.usmb_place
	code := C.usmb_sycl_place_for(own.context, own.queue, foreignPointer(address), foreignPointer(address+size), &found)
	if err := syclError("tell the kind of memory whose pages were given back", code); err != nil {
		return err
	}
	defer C.usmb_place_release(found)
	if found.kind != own.kind {
		return noPages("memory whose pages were given back is of kind %d instead of %d", found.kind, own.kind)
	}
	return nil
}
