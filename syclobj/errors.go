package syclobj

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/usmbridge/usmbridge/internal/operr"
)

// Code is a result of the C layer. It is an error value itself, so that errors.Is(err, ErrNotUSM) works on
// errors of this package.
type Code int32

// The codes, in the order of the header usmb_sycl.h.
const (
	codeOK            Code = iota
	ErrNoSYCL              // no SYCL library is loaded, or SYCL is switched off
	ErrNil                 // a required pointer or object is nil
	ErrArgument            // an argument is invalid
	ErrNoHostMemory        // out of host memory for bookkeeping
	ErrAllocation          // the SYCL runtime could not allocate the memory
	ErrNotUSM              // the first byte is not USM of the context
	ErrOverrun             // the last byte is not USM of the first byte's kind
	ErrNoDevice            // no such device, or the runtime finds none for the memory
	ErrDeviceID            // no root device has that DLPack device index
	ErrNotDefault          // the memory is not in the default context of its platform
	ErrNoIndex             // the device is not a root device, so DLPack has no id for it
	ErrUnsupportedUSM      // the device does not support that kind of USM
	ErrFailed              // the library reported a failure
	ErrAsync               // work failed after its submission
	ErrNoCUDA              // the memory is not on a device of SYCL's CUDA backend
	ErrCapture             // a stream is captured for a CUDA graph

	// Codes of the Go side only.
	ErrClosed       Code = 100 // the object, or the last Runtime, was closed
	ErrNotAllocated Code = 101 // the pointer was not returned by Queue.Alloc, or was freed
	ErrUnsupported  Code = 102 // this build or system cannot have SYCL
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
	ErrUnsupportedUSM: "the device does not support this kind of unified shared memory: use a kind that usminfo lists for it, or another device",
	ErrFailed:         "the SYCL library reported a failure: set DPCTL_VERBOSITY=error to see its reason on stderr",
	ErrAsync:          "work on the device failed after its submission",
	ErrNoCUDA:         "this needs memory of a device of SYCL's CUDA backend, which the adapter libur_adapter_cuda.so.0 in a folder of UR_ADAPTERS_SEARCH_PATH brings (docs/gpu.md)",
	ErrCapture:        "a stream of CUDA is captured for a graph, so work on its device cannot be waited for: exchange memory before or after the capture",
	ErrClosed:         "the object was closed",
	ErrNotAllocated:   "the pointer is not a live allocation of this package: pass the exact address that Alloc returned, once",
	ErrUnsupported:    "SYCL needs Linux and cgo; the host backend works everywhere",
}

// Error returns the meaning of the code and a hint.
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
func (e *OpError) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

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

// notNil returns ErrNil for a method that was called on a nil pointer.
func notNil[T any](op string, receiver *T) error {
	if receiver == nil {
		return opErr(op, ErrNil, "called on a nil %T", receiver)
	}
	return nil
}

// libraryError is the error of a SYCL library that cannot be used. It matches ErrNoSYCL.
type libraryError struct {
	Path    string // the file, or the name that was searched
	Symbol  string // the missing function, or ""
	Version string // the version of dpctl, or "" if unknown
	Reason  string // the problem
	Advice  string // the hint
	Err     error  // an underlying error, or nil
}

// Error returns the file, the reason and the hint.
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

// Unwrap returns ErrNoSYCL, and the underlying error if there is one.
func (e *libraryError) Unwrap() []error { return operr.Unwrap(ErrNoSYCL, e.Err) }

// BuildError is the error of a program that could not be built. It matches ErrFailed if the compiler
// refused the program. It is a value: it owns nothing and may be read by several goroutines.
type BuildError struct {
	Op     string
	Device string // filter string of the target device
	Log    string // at most 64 KiB of the compiler's log, if OpenCL provides it
	Err    error
}

// Error returns the reason and the compiler's log.
func (e *BuildError) Error() string {
	s := "syclobj: " + e.Op + ": for " + e.Device + ": " + strings.TrimPrefix(e.Err.Error(), "syclobj: ")
	if log := strings.TrimSpace(e.Log); log != "" {
		s += ":\n" + log
	}
	return s
}

// Unwrap returns Err.
func (e *BuildError) Unwrap() error { return e.Err }

// KernelError is the error of a refused launch: of one of its arguments, or as a whole. It is a value: it
// owns nothing and may be read by several goroutines.
type KernelError struct {
	Op     string
	Kernel string // the name of the kernel
	Index  int    // the index of the invalid argument from 0, or -1
	Arg    string // the argument: "float64", "a pointer"
	Err    error  // the problem and a hint; it wraps a Code
}

// Error returns the kernel, the argument and the reason.
func (e *KernelError) Error() string {
	s := "syclobj: " + e.Op + ": kernel " + e.Kernel + ": "
	if e.Index >= 0 {
		s += fmt.Sprintf("argument %d, %s: ", e.Index, e.Arg)
	}
	return s + strings.TrimPrefix(e.Err.Error(), "syclobj: ")
}

// Unwrap returns Err.
func (e *KernelError) Unwrap() error { return e.Err }
