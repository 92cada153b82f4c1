//go:build linux && cgo

package testmod

/*
#cgo CFLAGS: -std=gnu11 -I${SRCDIR}/../..
#include "usmb_testmod.h"
*/
import "C"

import (
	"unsafe"

	_ "github.com/usmbridge/usmbridge/interop/python" // the C table and its functions
)

// Name is the name of the module.
const Name = "usmb_testmod"

// Init returns the address of the module's init function.
func Init() unsafe.Pointer { return C.usmb_testmod_init() }

// Drains returns how often the registered drain function ran.
func Drains() int { return int(C.usmb_testmod_drains()) }

// Exits returns how often the registered exit function ran.
func Exits() int { return int(C.usmb_testmod_exits()) }

// DropOnThread releases a reference on a new thread without the GIL, which neither Go nor
// Python created, and waits for that thread.
func DropOnThread(object unsafe.Pointer) { C.usmb_testmod_drop_on_thread(object) }
