//go:build cgo && linux

package segment

/*
#cgo CFLAGS: -I${SRCDIR}/../../syclobj
#include "usmb_sycl.h"
*/
import "C"

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// handleSupport returns an error if memory of a place cannot be shared by handles.
func handleSupport(place *syclobj.Place) error {
	if place.Kind() != syclobj.USMDevice {
		return cannot("only memory of kind %v has handles (got %v)", syclobj.USMDevice, place)
	}
	switch C.usmb_sycl_ipc_support((*C.usmb_place)(place.Ref()).device) {
	case C.USMB_SYCL_IPC_OK:
		return nil
	case C.USMB_SYCL_IPC_NO_LIBRARY:
		return cannot("no SYCL library is loaded")
	case C.USMB_SYCL_IPC_NO_FUNCTIONS:
		return cannot("the SYCL library lacks DPCTLIPCMem_GetHandle and related functions; install a dpctl later than 0.22")
	case C.USMB_SYCL_IPC_NOT_BUILT:
		return cannot("the SYCL library was built without inter-process communication")
	}
	return cannot("the device of %v lacks the aspect ext_oneapi_ipc_memory", place)
}

// isPadded reports whether an allocation of USM is a part of a larger block of the driver.
func isPadded(base uintptr) bool { return C.usmb_sycl_is_padded(pointer(base)) != 0 }

// handleOf has the driver make the handle of an allocation.
func handleOf(place *syclobj.Place, base uintptr) ([]byte, error) {
	var buffer [maxHandle]byte
	var n C.size_t
	code := C.usmb_sycl_ipc_get((*C.usmb_place)(place.Ref()).context, pointer(base),
		(*C.char)(unsafe.Pointer(&buffer)), C.size_t(len(buffer)), &n)
	if code == C.USMB_SYCL_EARG {
		return nil, fmt.Errorf("the driver's handle has %d bytes (want at most %d)", uint64(n), maxHandle)
	}
	if code != C.USMB_SYCL_OK {
		return nil, &syclobj.OpError{Op: "make a handle", Err: syclobj.Code(code)}
	}
	return bytes.Clone(buffer[:n]), nil
}

// openHandle has the driver map the memory of a handle.
func openHandle(place *syclobj.Place, handle []byte, size uintptr) (uintptr, error) {
	p := (*C.usmb_place)(place.Ref())
	var out unsafe.Pointer
	code := C.usmb_sycl_ipc_open(p.context, p.device, (*C.char)(unsafe.Pointer(unsafe.SliceData(handle))),
		C.size_t(len(handle)), C.size_t(size), &out)
	if code != C.USMB_SYCL_OK {
		return 0, &syclobj.OpError{Op: "open a handle", Err: syclobj.Code(code)}
	}
	return uintptr(out), nil
}

// closeHandle unmaps memory that openHandle mapped.
func closeHandle(place *syclobj.Place, base uintptr) error {
	if code := C.usmb_sycl_ipc_close((*C.usmb_place)(place.Ref()).context, pointer(base)); code != C.USMB_SYCL_OK {
		return &syclobj.OpError{Op: "close a handle", Err: syclobj.Code(code)}
	}
	return nil
}
