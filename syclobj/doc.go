// Package syclobj provides SYCL objects (platforms, devices, contexts, queues, events, kernels) and
// unified shared memory (USM) to Go through the C library libDPCTLSyclInterface.so, which the Python
// package dpctl contains. The library is loaded at run time; building needs Go and a C compiler only.
//
// # Runtimes
//
// [Open] finds the library and returns a [Runtime]. A Runtime always has the host backend: one platform
// "host" with one device, whose filter string is "host", and page-backed memory. If the library is
// found, it also has SYCL, with the same types and methods. Without cgo, and on systems other than
// Linux, only the host backend exists, and functions that need SYCL return an error that matches
// [errors.ErrUnsupported].
//
// A process has one instance of the library. If it is already loaded, for example by an embedded Python,
// that instance is used. All Runtimes of a process share one table of devices, which is closed with the
// last of them. The library is never unloaded.
//
// # Search for the library
//
//  1. An instance that the process has already loaded. Asking for a different file is then an error.
//  2. [WithLibrary], or the environment variable USMBRIDGE_SYCL: the path of the file or of its
//     directory (with a slash), a name for the dynamic loader, or "off".
//  3. The virtual environment in VIRTUAL_ENV.
//  4. The environment of the python3 on PATH. If it is not a virtual environment, python3 is run to
//     print its search path, for at most 5 seconds.
//  5. The dynamic loader's search path, without directories that depend on the working directory (an
//     empty or relative part of LD_LIBRARY_PATH).
//
// Files that would crash or block the process, such as a truncated library or a named pipe, are detected
// before loading and reported as an error.
//
// SYCL finds a pip-installed OpenCL CPU runtime (intel-opencl-rt) only if OCL_ICD_FILENAMES contains its
// libintelocl.so. If no OpenCL driver is configured by OCL_ICD_FILENAMES, OCL_ICD_VENDORS or
// /etc/OpenCL/vendors, and that file is in the directory of libsycl, Open sets the variable for this
// process and its children.
//
// Drivers replace the process's handlers of SIGSEGV and other signals when devices are listed. Open
// restores the former handlers, so that a nil dereference in Go remains a panic.
//
// # Ownership
//
// Root devices, platforms, default contexts and default queues belong to the Runtime; their Close does
// nothing. New… functions, …FromRef methods, TakeEvent and SubDevices return objects that the caller
// owns and closes. Close may be called repeatedly and from any goroutine; a call in progress on another
// goroutine finishes first. Use of a closed object returns [ErrClosed].
//
// An [Event] deletes its SYCL event as soon as it is known to be complete. So an event that was waited
// for needs no Close.
//
// A [Place] describes all memory of one context, device and kind. Places are interned and reference
// counted: functions that look one up return it retained, and the caller calls Release.
//
// Objects that the caller owns outlive the last Runtime: queues, events and memory still work and must
// still be closed and freed. Only operations that need the table of devices (the devices of a context,
// sub-devices, new places) return ErrClosed then.
//
// The garbage collector frees nothing. [LiveObjects] counts the objects that are held; it is zero when
// everything has been closed, freed and released.
//
// # Programs and kernels
//
// [Queue.BuildOpenCL] and [Queue.BuildSPIRV] compile a [Program] for the device and context of a queue.
// [Program.Kernel] returns a [Kernel], and [Kernel.Submit] launches it with addresses and numbers.
// Package usmarray/kernel launches kernels with arrays. The library reports neither why a program does
// not build nor the parameters of a kernel. This package obtains both from OpenCL, which builds the
// program a second time. The host backend has no kernels.
//
// # Errors
//
// Functions and methods that fail return an [OpError] with the operation, the problem and the kind,
// which is one of the [Code] constants; errors.Is finds it. The errors of an unusable library match
// [ErrNoSYCL]. [BuildError] and [KernelError] describe failed builds and launches.
//
//	ErrNoSYCL          no library was found, or SYCL is switched off
//	ErrUnsupported     this build or system cannot have SYCL (errors.ErrUnsupported)
//	ErrNil             a required pointer or object is nil
//	ErrArgument        an argument is invalid
//	ErrClosed          the object, or the last Runtime, was closed
//	ErrAllocation      out of the requested memory
//	ErrNoHostMemory    out of host memory for bookkeeping
//	ErrUnsupportedUSM  the device does not support the kind of USM
//	ErrNotUSM          the first byte is not USM of the context
//	ErrOverrun         the last byte is not memory of the first byte's kind
//	ErrNotAllocated    Free of an address that Queue.Alloc did not return
//	ErrNoDevice        nothing matches, or the runtime finds no device for the memory
//	ErrDeviceID        no root device has the DLPack id
//	ErrNoIndex         the device is not a root device: DLPack has no id for it
//	ErrNotDefault      the memory is not in the default context of its platform
//	ErrFailed          the library reported a failure
//	ErrAsync           work failed after its submission
//
// On a nil pointer, methods that can return an error return ErrNil, Close does nothing, and a nil [Event]
// is complete. The other methods dereference nil, which is a Go run-time panic.
//
// # Threads
//
// All functions and methods may be called from several goroutines at once. One goroutine polls all
// events that are waited for with a cancellable context; it ends with the last wait. Cancelling ends the
// wait, not the work. If the runtime does not report an event's state, one more goroutine blocks in the
// runtime's own wait.
//
// # Fork and exit
//
// SYCL drivers do not survive a fork: the child must not call SYCL functions. Memory of the host backend
// is the child's own copy. Nothing must be closed before the process exits.
//
// # C code
//
// The header usmb_sycl.h declares the same operations for C code of this module that runs without
// entering Go.
package syclobj
