//go:build linux && cgo

package python

/*
#include <stdlib.h>
#include "usmb_pyinit.h"
#include "usmb_pystate.h"
*/
import "C"

import (
	_ "embed" // children.py
	"errors"
	"fmt"
	"os"
	"runtime"
	"unicode/utf8"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/elfcheck"
	"github.com/usmbridge/usmbridge/internal/linkage"
	"github.com/usmbridge/usmbridge/interop/internal/calling"
)

const errBuf = 1024

func init() { C.usmb_py_note_go_handler() }

func startError(library string, kind, err error) error {
	return &OpError{Op: "Start", Path: library, Kind: kind, Err: err}
}

// withErrText calls f with a buffer for an error text. It returns that text and the
// result of f.
func withErrText(f func(buf *C.char, n C.size_t) bool) (string, bool) {
	buf := (*C.char)(C.calloc(1, errBuf))
	defer C.free(unsafe.Pointer(buf))
	ok := f(buf, errBuf)
	return C.GoString(buf), ok
}

// start implements Start. The caller holds startMu.
func start(o *options) (*Interpreter, error) {
	if C.usmb_py_in_process() != 0 {
		if err := load(nil, "this process"); err != nil {
			return nil, err
		}
		if C.usmb_py_initialized() != 0 {
			return adopt(o)
		}
	}
	if o.env != nil {
		return initialize(o.env)
	}
	env, err := Find()
	if err != nil {
		return nil, err
	}
	return initialize(env)
}

// load fills the table of CPython's functions from a dlopen handle, or from the process if
// handle is nil. library is the name for errors.
func load(handle ptr, library string) error {
	var missing *C.char
	if C.usmb_py_load(handle, &missing) == 0 {
		return nil
	}
	symbol := C.GoString(missing)
	if symbol == C.USMB_PY_FREE_THREADED {
		return startError(library, ErrFreeThreaded, nil)
	}
	return startError(library, ErrTooOld,
		fmt.Errorf("it has no symbol %s: need CPython %d.%d or newer", symbol, MinVersion.Major, MinVersion.Minor))
}

// open loads the library of an environment and fills the table from it.
func open(env *Environment) error {
	if env.Library == "" {
		return startError(env.Executable, ErrNoLibrary, nil)
	}
	if linkage.Static() {
		return startError(env.Library, errors.ErrUnsupported,
			errors.New("the program is linked statically and cannot load shared libraries; link it dynamically, without -static"))
	}
	// dlopen of a truncated library would end the process.
	if err := elfcheck.File(env.Library); err != nil {
		return startError(env.Library, nil, err)
	}
	path := C.CString(env.Library)
	defer C.free(unsafe.Pointer(path))
	var handle ptr
	text, ok := withErrText(func(buf *C.char, n C.size_t) bool {
		handle = C.usmb_py_open(path, buf, n)
		return handle != nil
	})
	if !ok {
		return startError(env.Library, nil, errors.New(text))
	}
	if err := load(handle, env.Library); err != nil {
		return err
	}
	v := versionFromHex(uint32(C.usmb_py.version))
	if v.Major != env.Version.Major || v.Minor != env.Version.Minor {
		return startError(env.Library, ErrConflict,
			fmt.Errorf("it is Python %s, but %s is %s", v, env.Executable, env.Version))
	}
	return nil
}

// registerPackages registers the modules of packages that the program links, such as
// interop/pymodule.
func registerPackages() error {
	if calling.Register == nil {
		return nil
	}
	return calling.Register()
}

// initialize loads and initialises the Python of env.
func initialize(env *Environment) (*Interpreter, error) {
	if err := registerPackages(); err != nil {
		return nil, err
	}
	if err := open(env); err != nil {
		return nil, err
	}
	program := C.CString(env.Executable)
	wide := wideString(env.Executable) // not freed: Python keeps the pointer
	defer C.free(unsafe.Pointer(program))
	// usmb_py_initialize must release the GIL on the thread that initialised Python.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, ok := withErrText(func(buf *C.char, n C.size_t) bool {
		return C.usmb_py_initialize(program, wide, buf, n) == 0
	})
	if !ok {
		return nil, startError(env.Library, nil, errors.New(text))
	}
	return &Interpreter{env: *env}, nil
}

// adopt returns the interpreter that the process runs already.
func adopt(o *options) (*Interpreter, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, ok := withErrText(func(buf *C.char, n C.size_t) bool {
		return C.usmb_py_adopt_running(buf, n) == 0
	})
	if !ok {
		return nil, startError("this process", nil, errors.New(text))
	}
	py := &Interpreter{adopted: true}
	py.env.Source = "process"
	py.env.Version = versionFromHex(uint32(C.usmb_py.version))
	for name, dst := range map[string]*string{
		"executable": &py.env.Executable, "prefix": &py.env.Prefix, "base_prefix": &py.env.BasePrefix,
	} {
		v, err := py.sysText(name)
		if err != nil {
			return nil, err
		}
		*dst = v
	}
	return py, py.agrees(&options{env: o.env})
}

// sysText returns an attribute of sys that is a str, or "" if it is None.
func (py *Interpreter) sysText(name string) (string, error) {
	v, err := py.importAttr("sys", name)
	if err != nil {
		return "", err
	}
	defer v.Release()
	if v.IsNone() {
		return "", nil
	}
	return v.Text()
}

// wideString returns a new wchar_t string (32 bits per character on Linux). Bytes that are
// not UTF-8 become lone surrogates, as in Python's file system encoding.
func wideString(s string) *C.wchar_t {
	const surrogateEscape = 0xDC00
	w := make([]C.wchar_t, 0, len(s)+1)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 { // an invalid byte, not an encoded U+FFFD
			r = surrogateEscape + rune(s[i])
		}
		w = append(w, C.wchar_t(r))
		i += n
	}
	w = append(w, 0)
	n := C.size_t(len(w)) * C.sizeof_wchar_t
	p := C.malloc(n)
	copy(unsafe.Slice((*C.wchar_t)(p), len(w)), w)
	return (*C.wchar_t)(p)
}

// addModule implements RegisterModule.
func addModule(name string, init ptr) error {
	n := C.CString(name) // C keeps it on success
	if C.usmb_py_add_module(n, init) == 0 {
		return nil
	}
	C.free(unsafe.Pointer(n))
	return &OpError{Op: "RegisterModule", Path: name, Kind: ErrConflict,
		Err: errors.New("the name is registered already, or modules cannot be added any more")}
}

// childrenScript makes multiprocessing start its children with the host program.
//
//go:embed children.py
var childrenScript string

// runMain implements Main. It returns only on failure.
func runMain(env *Environment, args []string, host string) error {
	if os.Getpid() != int(C.usmb_py_thread_id()) {
		return &OpError{Op: "Main", Path: env.Executable, Err: errors.New("not called on the process's main thread"),
			Hint: "call runtime.LockOSThread in an init function"}
	}
	if err := registerPackages(); err != nil {
		return err
	}
	if err := open(env); err != nil {
		return err
	}
	argv := make([]*C.char, 0, len(args)+2)
	for _, a := range append([]string{env.Executable}, args...) {
		argv = append(argv, C.CString(a))
	}
	block := (**C.char)(C.calloc(C.size_t(len(argv)+1), C.size_t(unsafe.Sizeof(argv[0]))))
	copy(unsafe.Slice(block, len(argv)), argv)
	var h *C.char
	if host != "" {
		h = C.CString(host)
	}
	C.usmb_py_main(C.int(len(argv)), block, h, C.CString(childrenScript))
	return nil
}
