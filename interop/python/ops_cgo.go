//go:build linux && cgo

package python

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "usmb_pycall.h"
#include "usmb_pyerror.h"
#include "usmb_pygo.h"
#include "usmb_pyobject.h"
#include "usmb_pyvalues.h"
*/
import "C"

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/internal/values"
)

// The operations of the C files (usmb_pyop_*) may be called from any goroutine. Each is one
// cgo call. Strings are passed as pointer and length without a copy, or copied to C strings.

func toRet(r C.usmb_pyret) ret {
	return ret{val: r.val, num: int64(r.num), re: float64(r.re), im: float64(r.im),
		exc: r.exc, code: int(r.code), kind: int(r.kind)}
}

// FromResult takes over the usmb_pyret (usmb_pyresult.h) that an operation in a C file of
// another package returned. It returns the new reference as an owned Object (nil for
// NULL), or the error that operations of this package return.
func FromResult(result unsafe.Pointer) (*Object, error) {
	r := retAt(result)
	if r.code != codeOK {
		return nil, r.err()
	}
	return FromPointer(r.val), nil
}

func chars(s string) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.size_t(len(s))
}

// withCString calls f with a C string of s, which it then frees.
func withCString(s string, f func(*C.char) C.usmb_pyret) ret {
	c := C.CString(s)
	defer C.free(unsafe.Pointer(c))
	return toRet(f(c))
}

// takeText copies and frees the text of a result.
func takeText(r ret) (string, ret) {
	if r.code != 0 {
		return "", r
	}
	s := C.GoStringN((*C.char)(r.val), C.int(r.num))
	C.free(r.val)
	return s, r
}

func first(items []ptr) *ptr { return unsafe.SliceData(items) }

func opEnter() ret          { return toRet(C.usmb_pyop_enter()) }
func opLeave(state int64)   { C.usmb_pyop_leave(C.int64_t(state)) }
func opSuspend() ptr        { return C.usmb_pyop_suspend().val }
func opResume(ts ptr)       { C.usmb_pyop_resume(ts) }
func opIncref(o ptr) ret    { return toRet(C.usmb_pyop_incref(o)) }
func opDecref(o ptr)        { C.usmb_pyop_decref(o) }
func opDecrefLater(o ptr)   { C.usmb_py_decref_later((*C.PyObject)(o)) }
func opAlive() bool         { return C.usmb_py_alive() != 0 }
func opInChild() bool       { return C.usmb_py_in_child() != 0 }
func opGone() bool          { return C.usmb_py_state == C.USMB_PY_GONE }
func opNone() ptr           { return ptr(C.usmb_py.Py_None) }
func opTrue() ptr           { return ptr(C.usmb_py.Py_True) }
func opFalse() ptr          { return ptr(C.usmb_py.Py_False) }
func opLen(o ptr) ret       { return toRet(C.usmb_pyop_len(o)) }
func opIter(o ptr) ret      { return toRet(C.usmb_pyop_iter(o)) }
func opNext(it ptr) ret     { return toRet(C.usmb_pyop_next(it)) }
func opView(o ptr) ret      { return toRet(C.usmb_pyop_view(o)) }
func opIndex(o ptr) ret     { return toRet(C.usmb_pyop_index(o)) }
func opFloat(o ptr) ret     { return toRet(C.usmb_pyop_float(o)) }
func opBuiltins() ret       { return toRet(C.usmb_pyop_builtins()) }
func opDetachError(exc ptr) { C.usmb_pyop_detach_error(exc) }
func opRaise(exc ptr)       { C.usmb_pyop_raise(exc) }

func opGetAttr(o ptr, name string) ret {
	p, n := chars(name)
	return toRet(C.usmb_pyop_getattr(o, p, n))
}

func opSetAttr(o ptr, name string, v ptr) ret {
	p, n := chars(name)
	return toRet(C.usmb_pyop_setattr(o, p, n, v))
}

func opGetItem(o, key ptr) ret    { return toRet(C.usmb_pyop_getitem(o, key)) }
func opSetItem(o, key, v ptr) ret { return toRet(C.usmb_pyop_setitem(o, key, v)) }
func opItems(o ptr, out []ptr) ret {
	return toRet(C.usmb_pyop_items(o, first(out), C.size_t(len(out))))
}
func opFromInt(v int64) ret     { return toRet(C.usmb_pyop_from_int(C.int64_t(v))) }
func opFromFloat(v float64) ret { return toRet(C.usmb_pyop_from_float(C.double(v))) }
func opErrorHandle(exc ptr) ret { return toRet(C.usmb_pyop_error_handle(exc)) }

func opDictItems(o ptr, out []ptr) ret {
	return toRet(C.usmb_pyop_dict_items(o, first(out), C.size_t(len(out)/2)))
}

func opCall(f ptr, args []ptr, npos int, kwnames ptr) ret {
	return toRet(C.usmb_pyop_call(f, first(args), C.size_t(npos), kwnames))
}

// callRecord is the state of a call with a context that C and Go share. C writes it with
// the GIL held. It has no Go pointers.
type callRecord C.usmb_call

// opCallContext is opCall with a record, which other threads may pass to opInterrupt during
// the call.
func opCallContext(c *callRecord, f ptr, args []ptr, npos int, kwnames ptr) ret {
	return toRet(C.usmb_pyop_call_context((*C.usmb_call)(c), f, first(args), C.size_t(npos), kwnames))
}

// fromC returns the number of a call that C code made, or 0 for a CallContext.
func (c *callRecord) fromC() uint64 { return uint64(c.number) }

// retAt reads a usmb_pyret.
func retAt(result unsafe.Pointer) ret { return toRet(*(*C.usmb_pyret)(result)) }

func opInterrupt(c *callRecord) { C.usmb_pyop_interrupt((*C.usmb_call)(c)) }
func opHoldsGIL() bool          { return C.usmb_py_holds_gil() != 0 }

// opCurrentCall returns the record of the innermost call on this thread, or nil. A
// CallContext keeps its record reachable while it runs.
func opCurrentCall() *callRecord { return (*callRecord)(C.usmb_py_call_current()) }

// opMethod calls a method of args[0].
func opMethod(name string, args []ptr, npos int, kwnames ptr) ret {
	p, n := chars(name)
	return toRet(C.usmb_pyop_method(p, n, first(args), C.size_t(npos), kwnames))
}

func opText(o ptr, kind int) (string, ret) {
	return takeText(toRet(C.usmb_pyop_text(o, C.int(kind))))
}

// opErrorPart returns a part of an exception, or "" if reading it fails.
func opErrorPart(exc ptr, part int) string {
	s, r := takeText(toRet(C.usmb_pyop_error_part(exc, C.int(part))))
	if r.code == codeException {
		opDecref(r.exc)
	}
	return s
}

func opFromText(s string) ret {
	p, n := chars(s)
	return toRet(C.usmb_pyop_from_text(p, n))
}

func opFromBytes(b []byte) ret {
	return toRet(C.usmb_pyop_from_bytes(unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b))))
}

func opFromHex(s string) ret {
	return withCString(s, func(c *C.char) C.usmb_pyret { return C.usmb_pyop_from_hex(c) })
}

// opFromNames returns a tuple. It takes over the references.
func opFromNames(items []ptr) ret {
	return toRet(C.usmb_pyop_from_names(first(items), C.size_t(len(items))))
}

// opFromWords returns the object of a value that package values encoded.
func opFromWords(words []uint64) ret {
	return toRet(C.usmb_pyop_from_words((*C.uint64_t)(unsafe.SliceData(words))))
}

// These declarations compile only if the kinds of values are equal in C: each difference
// indexes an array of one element.
var (
	_ = [1]struct{}{}[C.USMB_VALUE_UINT-values.Uint]
	_ = [1]struct{}{}[C.USMB_VALUE_COMPLEX-values.Complex]
	_ = [1]struct{}{}[C.USMB_VALUE_BYTES-values.Bytes]
	_ = [1]struct{}{}[C.USMB_VALUE_DICT-values.Dict]
	_ = [1]struct{}{}[C.USMB_VALUE_OBJECT-values.Object]
	_ = [1]struct{}{}[C.USMB_VALUE_ARRAY-values.Array]
)

func opImport(name string) ret {
	return withCString(name, func(c *C.char) C.usmb_pyret { return C.usmb_pyop_import(c) })
}

func opRun(code, filename string, start int, globals ptr) ret {
	f := C.CString(filename)
	defer C.free(unsafe.Pointer(f))
	return withCString(code, func(c *C.char) C.usmb_pyret {
		return C.usmb_pyop_run(c, C.size_t(len(code)), f, C.int(start), globals)
	})
}

func opNewError(class, msg string, handle uintptr, cause ptr) ret {
	p, n := chars(msg)
	return withCString(class, func(c *C.char) C.usmb_pyret {
		return C.usmb_pyop_new_error(c, p, n, C.uintptr_t(handle), cause)
	})
}

func opFunction(handle uintptr, name, doc string) ret {
	d := C.CString(doc)
	defer C.free(unsafe.Pointer(d))
	return withCString(name, func(c *C.char) C.usmb_pyret {
		return C.usmb_pyop_function(C.uintptr_t(handle), c, d)
	})
}

//export usmb_py_go_call
func usmb_py_go_call(handle C.uintptr_t, args, kwargs *C.PyObject) *C.PyObject {
	return (*C.PyObject)(goCall(uintptr(handle), ptr(args), ptr(kwargs)))
}

//export usmb_py_go_free
func usmb_py_go_free(handle C.uintptr_t) { freeHandle(uintptr(handle)) }
