//go:build linux && cgo

// Package cuda has the functions for memory of SYCL's CUDA backend that exchanges need, beside those of syclobj.
package cuda

/*
#cgo CFLAGS: -I${SRCDIR}/../../../syclobj
#include "usmb_sycl.h"

// Return results by value, so that no address of a Go variable is passed to C.
typedef struct { usmb_place *place; int32_t n; int err; } result;

static result show(usmb_place *place)
{
	result r = {place, 0, 0};
	r.err = usmb_cuda_show(place, &r.n);
	return r;
}
static result take(int32_t ordinal, uintptr_t lo, uintptr_t hi)
{
	result r = {NULL, 0, 0};
	r.err = usmb_cuda_import(ordinal, (void *)lo, (void *)hi, &r.place);
	return r;
}
*/
import "C"

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// AnyDevice stands for the device of memory whose ordinal is not known.
const AnyDevice = -2

// Ordinal prepares memory of a place for libraries of CUDA, and returns CUDA's number of its device, which may
// differ from the positions in SYCL's lists. From then on, host accesses,
// copies and the reuse of exported memory of the place come after all work of CUDA on the device. Errors:
// syclobj.ErrNoCUDA for places on other backends.
func Ordinal(p *syclobj.Place) (int32, error) {
	if p.IsHost() {
		return 0, opErr("Ordinal", syclobj.ErrNoCUDA)
	}
	r := C.show((*C.usmb_place)(p.Ref()))
	return int32(r.n), opErr("Ordinal", syclobj.Code(r.err))
}

// Place returns the place of memory [lo, hi) that another library allocated with CUDA on the device with that
// ordinal, or AnyDevice, retained. It waits for all work of CUDA on the device. Errors: syclobj.ErrNoCUDA if no Runtime has a
// device of the CUDA backend, ErrDeviceID if it has not that device or the memory is not on it, ErrNotUSM,
// ErrOverrun.
func Place(ordinal int32, lo, hi uintptr) (*syclobj.Place, error) {
	if ordinal < 0 && ordinal != AnyDevice {
		return nil, opErr("Place", syclobj.ErrArgument)
	}
	r := C.take(C.int32_t(ordinal), C.uintptr_t(lo), C.uintptr_t(hi))
	if err := opErr("Place", syclobj.Code(r.err)); err != nil {
		return nil, err
	}
	p := syclobj.WrapPlace(unsafe.Pointer(r.place))
	if err := opErr("Place", syclobj.Code(C.usmb_cuda_wait(r.place, 0))); err != nil {
		p.Release()
		return nil, err
	}
	return p, nil
}

func opErr(op string, code syclobj.Code) error {
	if code == 0 {
		return nil
	}
	return &syclobj.OpError{Op: "CUDA: " + op, Kind: code}
}
