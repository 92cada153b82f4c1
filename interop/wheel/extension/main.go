//go:build cgo && linux

// Command extension is the Python extension module usmbridge as a shared library
// (go build -buildmode=c-shared); the program interop/wheel packs it.
package main

/*
#cgo CFLAGS: -I${SRCDIR}/../../python -I${SRCDIR}/../../pymodule -I${SRCDIR}/../../../dlpack -I${SRCDIR}/../../../memmgr/owner -I${SRCDIR}/../../../syclobj
#include "usmb_module.h"

static void *usmb_extension_init(void)
{
	if (usmb_py_adopt() < 0) {
		if (usmb_py.PyErr_Occurred && !usmb_py.PyErr_Occurred())
			usmb_py.PyErr_SetString(usmb_py.PyExc_ImportError, "usmbridge: this Python has no stable ABI that can be used: CPython 3.11 or newer, not free-threaded, is needed");
		return NULL;
	}
	return usmb_pymod_init();
}
*/
import "C"

import (
	"unsafe"

	_ "github.com/usmbridge/usmbridge/interop/pymodule" // the module itself
)

// PyInit_usmbridge is what Python's import calls, with the GIL held. Being Go, it
// waits until the Go runtime of the library has started.
//
//export PyInit_usmbridge
func PyInit_usmbridge() unsafe.Pointer { return C.usmb_extension_init() }

func main() {}
