//go:build cgo && linux

// Command extension is the Python extension module usmbridge._native as a shared library
// (go build -buildmode=c-shared). hatch_build.py builds it.
package main

/*
#cgo CFLAGS: -I${SRCDIR}/../../../interop/python -I${SRCDIR}/../../../interop/pymodule -I${SRCDIR}/../../../dlpack -I${SRCDIR}/../../owner -I${SRCDIR}/../../../syclobj
#define _GNU_SOURCE
#include <dlfcn.h>

#include "module.h"

void usmb_release_tables(void);

// Sets the ImportError after usmb_py_adopt has refused this Python. The function table is empty then, but
// these two symbols are the same in every CPython.
static void usmb_extension_refuse(void)
{
	void (*set)(PyObject *, const char *);
	PyObject **import_error = (PyObject **)dlsym(RTLD_DEFAULT, "PyExc_ImportError");
	*(void **)(void *)&set = dlsym(RTLD_DEFAULT, "PyErr_SetString");
	if (set && import_error)
		set(*import_error, "usmbridge: this Python has no stable ABI of CPython 3.11 or newer, like free-threaded builds; use CPython 3.11 or newer with the GIL");
}

static void *usmb_extension_init(void)
{
	if (usmb_py_adopt() < 0) {
		if (!usmb_py.version || !PyErr_Occurred())
			usmb_extension_refuse();
		return NULL;
	}
	PyObject *module = usmb_pymod_init();
	usmb_release_tables();
	return module;
}
*/
import "C"

import (
	"unsafe"

	_ "github.com/usmbridge/usmbridge/interop/pymodule" // the module itself
)

// PyInit__native is the function that Python's import calls, with the GIL held. An exported Go function
// waits until the Go runtime has started.
//
//export PyInit__native
func PyInit__native() unsafe.Pointer { return C.usmb_extension_init() }

func main() {}
