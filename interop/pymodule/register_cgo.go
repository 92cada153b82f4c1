//go:build cgo && linux

package pymodule

/*
#include <string.h>
#include "storage.h"
#include "module.h"

static void usmb_pymod_settle(usmb_list *list, usmb_list *shown, const char *version, size_t n)
{
	usmb_pylist = list;
	usmb_shown_list = shown;
	if (n >= sizeof usmb_pymod_version) n = sizeof usmb_pymod_version - 1;
	memcpy(usmb_pymod_version, version, n);
	usmb_pymod_version[n] = 0;
}
static void *usmb_package_init_address(void) { return (void *)usmb_package_init; }
*/
import "C"

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/pypackage"
	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// pythonList is the drop list of cells whose destruction needs Python. Its goroutine acquires
// the GIL, so it serves no other list.
var pythonList = newPythonList()

func newPythonList() *owner.List {
	l := owner.NewList(nil, owner.OwnGoroutine(), owner.Batch(drainPython))
	version := usmarray.Version
	C.usmb_pymod_settle((*C.usmb_list)(l.Pointer()), (*C.usmb_list)(owner.Shown.Pointer()),
		(*C.char)(unsafe.Pointer(unsafe.StringData(version))), C.size_t(len(version)))
	C.usmb_docs_set((*C.char)(C.CBytes(documentation())))
	memmgr.AddCache(func() { C.usmb_kept_clear() })
	return l
}

//go:embed docstrings.txt
var docstrings string

// documentation returns docstrings in the form that usmb_docs_set takes.
func documentation() []byte {
	b := make([]byte, 0, len(docstrings)+len(docstrings)/8)
	for _, entry := range strings.Split(docstrings, "\n=== ")[1:] {
		title, text, _ := strings.Cut(entry, "\n")
		name, parameters, callable := strings.Cut(title, "(")
		b = append(append(b, name...), 0)
		if callable { // the form of a signature in C
			b = append(b, name[strings.LastIndexByte(name, '.')+1:]+"("+parameters+"\n--\n\n"...)
		}
		b = append(append(b, strings.TrimSuffix(text, "\n")...), 0)
	}
	return append(b, 0)
}

// drainPython releases Python owners. After the end of Python they are leaked.
func drainPython(l *owner.List) {
	if C.usmb_owner_drain_locked() == 0 {
		l.Close()
	}
}

// carry copies the Python sources of the package to C memory, once. C serves them in forked
// children too, where Go cannot run.
var carry = sync.OnceFunc(func() {
	for _, f := range pypackage.Carried(usmarray.Version) {
		if C.usmb_package_add(C.CString(f.Name), C.CString(f.Data), C.size_t(len(f.Data))) != 0 {
			panic(fmt.Errorf("pymodule: no room for %s: raise MAX_FILES in module.c", f.Name))
		}
	}
})

// InitFunc returns the address of the init function, a PyObject *(*)(void), of the built-in
// module usmbridge, which becomes the package of that name. It is for programs that fill the
// inittab themselves.
func InitFunc() unsafe.Pointer {
	carry()
	return C.usmb_package_init_address()
}

// Register registers the module with its options before Python starts. A program without
// options need not call it: python.Start and python.Main register the module if the program
// links this package. Further calls add options.
//
// An interpreter that interop/python did not start has the module only if its program added
// InitFunc to the inittab.
//
// The error is [ErrRegistered] if the module uses another Runtime, or python.ErrConflict if
// another module is registered under the name.
func Register(options ...Option) error {
	if err := configure(options); err != nil {
		return err
	}
	return python.RegisterModule("usmbridge", InitFunc())
}

func init() { calling.Register = func() error { return Register() } }
