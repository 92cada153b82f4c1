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

func startError(library string, kind, err error) error {
	return &OpError{Op: "Start", Path: library, Kind: kind, Err: err}
}

// withErrText calls f with a buffer for a C error text and returns the text.
func withErrText(f func(buf *C.char, n C.size_t) bool) (string, bool) {
	buf := (*C.char)(C.calloc(1, errBuf))
	defer C.free(unsafe.Pointer(buf))
	ok := f(buf, errBuf)
	return C.GoString(buf), ok
}

// start does the work of Start, under its lock.
func start(o *options) (*Interpreter, error) {
	if C.usmb_py_in_process() != 0 {
		if err := load(nil, "this process"); err != nil {
			return nil, err
		}
		if C.usmb_pyx_initialized() != 0 {
			return adopt(o)
		}
	}
	env, err := o.environment()
	if err != nil {
		return nil, err
	}
	return initialize(env)
}

// environment resolves the options to a description.
func (o *options) environment() (*Environment, error) {
	if o.env != nil {
		return o.env, nil
	}
	return Find()
}

// load fills the table from a dlopen handle, or from the process when nil.
func load(handle ptr, library string) error {
	var missing *C.char
	if C.usmb_py_load(handle, &missing) == 0 {
		return nil
	}
	what := C.GoString(missing)
	if what == C.USMB_PY_FREE_THREADED {
		return startError(library, ErrFreeThreaded, nil)
	}
	return startError(library, ErrTooOld,
		fmt.Errorf("it has no symbol %s: need CPython %d.%d or newer", what, MinVersion.Major, MinVersion.Minor))
}

// open loads the library of an environment and its functions.
func open(env *Environment) error {
	if env.Library == "" {
		return startError(env.Executable, ErrNoLibrary, nil)
	}
	if linkage.Static() {
		return startError(env.Library, errors.ErrUnsupported,
			errors.New("the program is linked statically and cannot load shared libraries; link it dynamically, without -static"))
	}
	// A library that was cut short would end the process in dlopen.
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

// registerPackages registers the modules of the packages that the program links.
func registerPackages() error {
	if calling.Register == nil {
		return nil
	}
	return calling.Register()
}

func initialize(env *Environment) (*Interpreter, error) {
	if err := registerPackages(); err != nil {
		return nil, err
	}
	if err := open(env); err != nil {
		return nil, err
	}
	program := C.CString(env.Executable)
	wide := wideString(env.Executable) // Python keeps the pointer: never freed
	defer C.free(unsafe.Pointer(program))
	// The thread state is given up on the thread that made it.
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

// adopt takes the interpreter that the process has already.
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

// sysText returns an attribute of sys that is a str, "" when it is None.
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

// wideString makes a wchar_t string (32 bits each on Linux). Bytes that are no UTF-8
// become lone surrogates, as Python's file system encoding has it.
func wideString(s string) *C.wchar_t {
	const surrogateEscape = 0xDC00
	w := make([]C.wchar_t, 0, len(s)+1)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 { // one bad byte, not an encoded U+FFFD
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

// addModule does the work of RegisterModule.
func addModule(name string, init ptr) error {
	n := C.CString(name) // kept by C for ever when it succeeds
	if C.usmb_pyx_add_module(n, init) == 0 {
		return nil
	}
	C.free(unsafe.Pointer(n))
	return &OpError{Op: "RegisterModule", Path: name, Kind: ErrConflict,
		Err: errors.New("its name is taken, or modules cannot be added any more")}
}

// childrenScript tells multiprocessing what its children run.
//
//go:embed children.py
var childrenScript string

// runMain does the work of Main; it returns only on failure.
func runMain(env *Environment, args []string, host string) error {
	if os.Getpid() != int(C.usmb_pyx_thread_id()) {
		return &OpError{Op: "Main", Path: env.Executable, Err: errors.New("called on another thread than the process's first"),
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
