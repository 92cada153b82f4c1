//go:build cgo && linux

package owner

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#include "usmb_owner.h"

void usmb_owner_bind(usmb_control *control);
void usmb_chain_finish(usmb_cell *chain);
*/
import "C"

import "unsafe"

// bind gives C the address of the reservation.
func bind(c *control) { C.usmb_owner_bind((*C.usmb_control)(unsafe.Pointer(c))) }

// DropFunc returns the address of usmb_cell_drop, void (*)(void *cell), which drops one reference. It
// may be called from any thread, takes no lock and does not enter Go. Without cgo it is 0.
func DropFunc() uintptr { return uintptr(C.usmb_cell_drop) }

// DropObservedFunc is DropFunc for [Cell.Unobserve] and a drop: the function usmb_cell_drop_observed.
func DropObservedFunc() uintptr { return uintptr(C.usmb_cell_drop_observed) }

func finishInC(chain *Cell) { C.usmb_chain_finish((*C.usmb_cell)(unsafe.Pointer(chain))) }
