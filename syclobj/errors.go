package syclobj

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Code is a result of the C layer. It is an error itself, so that
// errors.Is(err, ErrNotUSM) works on whatever this package returns.
type Code int32

// The codes, in the order of the header usmb_sycl.h.
const (
	codeOK            Code = iota
	ErrNoSYCL              // no SYCL library was found or opened, or SYCL is switched off
	ErrNil                 // a required pointer or handle is nil
	ErrArgument            // an argument has an impossible value
	ErrNoHostMemory        // out of host memory for bookkeeping
	ErrAllocation          // the SYCL runtime could not allocate the memory
	ErrNotUSM              // the first byte is not USM of the context
	ErrOverrun             // the last byte is not USM of the first byte's kind
	ErrNoDevice            // no such device
	ErrDeviceID            // no root device has that DLPack device index
	ErrNotDefault          // not in the default context of its platform
	ErrNoIndex             // the device is not among the root devices
	ErrUnsupportedUSM      // the device does not support that kind of USM
	ErrFailed              // the library reported a failure
	ErrAsync               // work failed after its submission

	// Codes of the Go side alone.
	ErrClosed       Code = 100 // the object was closed
	ErrNotAllocated Code = 101 // the pointer did not come from Queue.Alloc, or was freed
	ErrUnsupported  Code = 102 // needs SYCL, which this build or system cannot have
)

var codeTexts = map[Code]string{
	codeOK:            "no error",
	ErrNoSYCL:         "no SYCL runtime is open: open one, for which `pip install dpctl intel-opencl-rt` brings libDPCTLSyclInterface.so, or name that in USMBRIDGE_SYCL",
	ErrNil:            "a required pointer or object is nil",
	ErrArgument:       "an argument has an impossible value",
	ErrNoHostMemory:   "out of host memory for bookkeeping",
	ErrAllocation:     "the SYCL runtime could not allocate the memory: ask for less, or free some",
	ErrNotUSM:         "the pointer is not unified shared memory of the context: pass the context or queue that it was allocated with",
	ErrOverrun:        "the last byte of the span is not memory of the kind of its first byte: the shape, strides or offset reach beyond the allocation",
	ErrNoDevice:       "the SYCL runtime knows no such device",
	ErrDeviceID:       "no root device has that DLPack device index",
	ErrNotDefault:     "the memory is not in the default context of its platform, which DLPack's kDLOneAPI requires: copy it, or use __sycl_usm_array_interface__",
	ErrNoIndex:        "the device is not among the runtime's root devices, so DLPack has no index for it",
	ErrUnsupportedUSM: "the device does not support this kind of unified shared memory: use another kind",
	ErrFailed:         "the SYCL library reported a failure: set DPCTL_VERBOSITY=error to see its reason on stderr",
	ErrAsync:          "work on the device failed after its submission",
	ErrClosed:         "the object was closed",
	ErrNotAllocated:   "the pointer is not a live allocation of this package: pass the exact address that Alloc returned, once",
	ErrUnsupported:    "SYCL needs Linux and cgo; the host backend works everywhere",
}

// Error says what the code means and what to do about it.
func (c Code) Error() string {
	if text, ok := codeTexts[c]; ok {
		return text
	}
	return "unknown error code " + strconv.Itoa(int(c))
}

// Is makes ErrUnsupported match errors.ErrUnsupported.
func (c Code) Is(target error) bool {
	return c == ErrUnsupported && target == errors.ErrUnsupported
}

// OpError is the type of nearly all errors of this package. It is a value: it owns nothing and may be
// read by several goroutines.
type OpError struct {
	Op   string // the function or method, such as "Queue.Alloc"
	Kind error  // a Code or errors.ErrUnsupported; nil if Err is sufficient
	Err  error  // the problem; may be nil
}

// Error returns operation, problem and kind. The text of a kind ends with what to do.
func (e *OpError) Error() string {
	s := "syclobj: " + e.Op
	for _, reason := range []error{e.Err, e.Kind} {
		if reason != nil {
			s += ": " + strings.TrimPrefix(reason.Error(), "syclobj: ")
		}
	}
	return s
}

// Unwrap returns the kind and the problem.
func (e *OpError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Err}, func(err error) bool { return err == nil })
}

// opErr returns nil for codeOK.
func opErr(op string, code Code, format string, args ...any) error {
	if code == codeOK {
		return nil
	}
	e := &OpError{Op: op, Kind: code}
	if format != "" {
		e.Err = fmt.Errorf(format, args...)
	}
	return e
}

// notNil is ErrNil for a method that was called on a nil pointer.
func notNil[T any](op string, receiver *T) error {
	if receiver == nil {
		return opErr(op, ErrNil, "called on a nil %T", receiver)
	}
	return nil
}

// libraryError says why a SYCL library could not be used. It matches
// ErrNoSYCL.
type libraryError struct {
	Path    string // the file, or what was looked for
	Symbol  string // the missing function, if that is the reason
	Version string // the version found, if known
	Reason  string // what is wrong
	Advice  string // what to do
	Err     error  // an underlying error, or nil
}

// Error names the file, the reason and what to do.
func (e *libraryError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "syclobj: %s: %s", e.Path, e.Reason)
	if e.Symbol != "" {
		fmt.Fprintf(&b, ": it has no function %s", e.Symbol)
	}
	if e.Version != "" {
		fmt.Fprintf(&b, " (dpctl %s)", e.Version)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Advice != "" {
		fmt.Fprintf(&b, "; %s", e.Advice)
	}
	return b.String()
}

// Unwrap gives ErrNoSYCL, and the underlying error if there is one.
func (e *libraryError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrNoSYCL}
	}
	return []error{ErrNoSYCL, e.Err}
}

// BuildError is a program that could not be built. It matches ErrFailed when the compiler
// refused the program, and then has its words where OpenCL gives them.
type BuildError struct {
	Op     string
	Device string // for which it was to be built, by its filter string
	Log    string // what the compiler says, at most 64 KiB of it
	Err    error
}

// Error gives the reason and the compiler's words.
func (e *BuildError) Error() string {
	s := "syclobj: " + e.Op + ": for " + e.Device + ": " + strings.TrimPrefix(e.Err.Error(), "syclobj: ")
	if log := strings.TrimSpace(e.Log); log != "" {
		s += ":\n" + log
	}
	return s
}

// Unwrap gives the reason.
func (e *BuildError) Unwrap() error { return e.Err }

// KernelError is a launch that was refused: for one of its arguments, or as a whole.
type KernelError struct {
	Op     string
	Kernel string // its name
	Index  int    // of the argument, from 0; -1 when it is not about one
	Arg    string // what was given: "float64", "a pointer"
	Err    error  // a Code, or a more specific error
}

// Error names the kernel, the argument and the reason.
func (e *KernelError) Error() string {
	s := "syclobj: " + e.Op + ": kernel " + e.Kernel + ": "
	if e.Index >= 0 {
		s += fmt.Sprintf("argument %d, %s: ", e.Index, e.Arg)
	}
	return s + strings.TrimPrefix(e.Err.Error(), "syclobj: ")
}

// Unwrap gives the reason.
func (e *KernelError) Unwrap() error { return e.Err }
