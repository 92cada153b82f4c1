// Package syclobj holds SYCL objects (platforms, devices, contexts, queues,
// events) and unified shared memory (USM) for Go, through the C library
// libDPCTLSyclInterface.so that the Python package dpctl carries. It is loaded
// at run time: building needs Go and a C compiler only.
//
// # Runtimes
//
// [Open] finds the library and gives a [Runtime]. A Runtime always has the host
// backend (one platform "host", one device with the filter string "host",
// page-backed memory), and SYCL beside it when the library is found; the types
// and methods are the same for both. Without cgo, and on systems other than
// Linux, there is the host backend only, and what needs SYCL answers an error
// that is [errors.ErrUnsupported].
//
// A process has one instance of the library. If something else, such as an
// embedded Python, has loaded it already, that instance is adopted. The
// Runtimes of a process share one table of devices, which goes away with the
// last of them; the library itself is never unloaded.
//
// # Where the library is looked for
//
//  1. an instance that the process holds already (asking for a different file
//     is then an error);
//  2. [WithLibrary], or the environment variable USMBRIDGE_SYCL: a path with a
//     slash in it, of the file or of its directory, a name for the dynamic loader,
//     or "off";
//  3. the virtual environment named by VIRTUAL_ENV;
//  4. the environment of the python3 on PATH. If it is not a virtual environment, it
//     is run to print its search path, for at most 5 seconds;
//  5. the dynamic loader's own search path, but for directories that depend on
//     the working directory (an empty or relative part of LD_LIBRARY_PATH).
//
// Only a whole library for this machine is loaded; what a truncated one, or a
// named pipe, would do to the process is an error that says so instead.
//
// A pip-installed OpenCL CPU runtime (intel-opencl-rt) is invisible until
// OCL_ICD_FILENAMES names its libintelocl.so. When no OpenCL driver is
// configured by OCL_ICD_FILENAMES, OCL_ICD_VENDORS or /etc/OpenCL/vendors, and
// that file lies beside libsycl, Open sets the variable, for this process and
// its children.
//
// Drivers replace the process's handlers of SIGSEGV and other signals while
// devices are listed; Open puts back those that were there, so that a nil
// dereference in Go stays a panic.
//
// # Ownership
//
// Root devices, platforms, and the default contexts and queues of devices
// belong to the Runtime: their Close does nothing. What a New… or …FromRef
// function, or SubDevices…, returns belongs to the caller, who calls Close
// once it is done with it. Close may be called again, from any goroutine; a
// call in progress on another goroutine finishes first. Using a closed object
// gives [ErrClosed].
//
// An [Event] lets go of its SYCL event as soon as it is known to be complete,
// so that an event that was waited for needs no Close.
//
// A [Place] is what is known about all memory of one context, device and kind.
// It is interned and counted: the functions that look one up
// return it retained, and their caller calls Release.
//
// What belongs to the caller outlives the last Runtime: queues, events and
// memory still work and are still to be closed and freed. Only what is looked up
// in the table of devices (devices of a context, parts of a device, new places)
// is ErrClosed then.
//
// Nothing is freed by the garbage collector. [LiveObjects] counts what is held
// and is zero when everything was closed, freed and released.
//
// # Programs and kernels
//
// [Queue.BuildOpenCL] and [Queue.BuildSPIRV] compile a [Program] for the device and context of
// a queue; [Program.Kernel] takes a [Kernel] from it, which [Kernel.Submit] launches with
// addresses and numbers. Package usmarray/kernel launches them with arrays. The library tells
// nothing of a program that does not build, nor of a kernel's parameters: OpenCL is asked for
// both, by building the program once more. The host backend has no kernels.
//
// # Errors
//
// Functions and methods that fail return an [OpError]: the operation, what was
// asked for and found, and the reason, which is one of the [Code] constants or an
// error that matches one. errors.Is finds it. Open returns a [LibraryError], which
// matches [ErrNoSYCL], for a library that cannot be used.
//
//	ErrNoSYCL          no library was found, or SYCL is switched off
//	ErrUnsupported     this build or system cannot have SYCL (errors.ErrUnsupported)
//	ErrNil             a required pointer or object is nil
//	ErrArgument        an argument has an impossible value
//	ErrClosed          the object, or the last Runtime, was closed
//	ErrAllocation      out of the memory asked for
//	ErrNoHostMemory    out of host memory for bookkeeping
//	ErrUnsupportedUSM  the device lacks the kind of USM
//	ErrNotUSM          the first byte is not USM of the context
//	ErrOverrun         the last byte is not memory of the first byte's kind
//	ErrNotAllocated    Free was given what Queue.Alloc did not give
//	ErrNoDevice        nothing matches, or the runtime names no device for memory
//	ErrDeviceID        no root device has the DLPack id
//	ErrNoIndex         the device is no root device: DLPack has no id for it
//	ErrNotDefault      memory outside the default context of its platform
//	ErrFailed          the library reported a failure
//	ErrAsync           work failed after its submission
//
// A method of a nil pointer that can return an error returns ErrNil; Close does
// nothing, a nil [Event] is complete, and the other methods dereference nil, which
// is Go's own run-time panic. None of them reaches the library.
//
// # Threads
//
// All functions and methods may be used from several goroutines at once.
// Waiting with a context that can be cancelled uses one goroutine for all events that
// are waited for, which ends with the last wait; cancelling ends the waiting, never
// the work. Where the runtime does not tell an event's state, one more goroutine makes
// the runtime's own wait.
//
// # Fork and exit
//
// SYCL's drivers do not survive a fork: in the child nothing of SYCL may be
// called; the host backend's memory is the child's own copy. Nothing needs to be
// closed before the process exits.
//
// # C code
//
// The header usmb_sycl.h declares the same operations for C code of this
// module that runs without entering Go.
package syclobj
