//go:build cgo && linux

package pymodule

/*
#include "usmb_create.h"
*/
import "C"

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/owner"
)

//export usmb_go_audience
func usmb_go_audience(cell *C.usmb_cell) (r C.int) {
	defer func() { _ = recover() }() // memory that is gone has no audience
	return C.int(audienceOf(memmgr.FromCell(owner.CellOf(unsafe.Pointer(cell)))))
}
