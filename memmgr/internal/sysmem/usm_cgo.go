//go:build cgo && linux

package sysmem

/*
#cgo CFLAGS: -I${SRCDIR}/../../../syclobj
#include "usmb_sycl.h"
*/
import "C"

import (
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
