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

// bind tells C where the reservation is.
func bind(c *control) { C.usmb_owner_bind((*C.usmb_control)(unsafe.Pointer(c))) }

// DropFunc returns the address of usmb_cell_drop, void (*)(void *cell): drops
// one reference from any thread, with no lock and no entry into Go. It is 0
// when the module was built without cgo.
func DropFunc() uintptr { return uintptr(C.usmb_cell_drop) }

func finishInC(chain *Cell) { C.usmb_chain_finish((*C.usmb_cell)(unsafe.Pointer(chain))) }
