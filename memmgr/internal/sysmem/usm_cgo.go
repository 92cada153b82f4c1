//go:build cgo && linux

package sysmem

/*
#cgo CFLAGS: -I${SRCDIR}/../../../syclobj
#include "usmb_sycl.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

func syclError(op string, code C.int) error {
	if code == C.USMB_SYCL_OK {
		return nil
	}
	return &syclobj.OpError{Op: op, Err: syclobj.Code(code)}
}

// AllocUSM allocates in a place, on the place's own queue.
func AllocUSM(p *syclobj.Place, size, align uintptr) (uintptr, error) {
	c := (*C.usmb_place)(p.Ref())
	var out unsafe.Pointer
	code := C.usmb_sycl_alloc(c.queue, C.uint32_t(c.kinds), c.kind, C.size_t(size), C.size_t(align), &out)
	return uintptr(out), syclError("allocate", code)
}

// FreeUSM frees memory of AllocUSM.
func FreeUSM(p *syclobj.Place, address uintptr) error {
	c := (*C.usmb_place)(p.Ref())
	return syclError("free", C.usmb_sycl_free(c.context, owner.Pointer(address)))
}

// TryDiscard tests whether the pages of memory of a place can be returned. Only the
// OpenCL device of a CPU allocates USM in private memory of the process; memory that another
// device maps must never lose its pages. The test checks that the pages go, that the runtime
// still reports the kind, and that copies on the queue still work.
func TryDiscard(place *syclobj.Place) error {
	device, err := place.Device()
	if err != nil {
		return err
	}
	if info := device.Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
		return noPages("memory of %s is not memory of the process; only an OpenCL CPU device's is", place)
	}
	q, err := place.Queue()
	if err != nil {
		return err
	}
	const pages = 16
	size := pages * PageSize
	address, err := AllocUSM(place, size, PageSize)
	if err != nil {
		return err
	}
	defer func() { _ = FreeUSM(place, address) }() // it was allocated above
	at := owner.Pointer(address)
	sample := bytes.Repeat([]byte("USM with pages. "), int(size)/16)
	if err := q.Write(at, sample); err != nil {
		return err
	}
	if err := Discard(address, size); err != nil {
		return err
	}
	if n := Resident(address, size); n != 0 {
		return noPages("%d of %d bytes stayed resident after their pages were returned", n, size)
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
		return noPages("memory whose pages were given back does not store data any more")
	}
	return stillUSM(place, address, size)
}

// stillUSM checks that the runtime reports the memory as before.
func stillUSM(place *syclobj.Place, address, size uintptr) error {
	own := (*C.usmb_place)(place.Ref())
	var found *C.usmb_place
	code := C.usmb_sycl_place_for(own.context, own.queue, owner.Pointer(address), owner.Pointer(address+size), &found)
	if err := syclError("read the kind of memory whose pages were given back", code); err != nil {
		return err
	}
	defer C.usmb_place_release(found)
	if found.kind != own.kind {
		return noPages("memory whose pages were given back is of kind %d instead of %d", found.kind, own.kind)
	}
	return nil
}
