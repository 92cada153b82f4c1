// Package syclobj provides SYCL objects (platforms, devices, contexts, queues, events, kernels) and
// unified shared memory (USM) to Go through the C library libDPCTLSyclInterface.so, which the Python
// package dpctl contains. The library is loaded at run time; building needs Go and a C compiler only.
//
//	rt, err := syclobj.Open()                        // finds the library
//	defer rt.Close()
//	queue := rt.DefaultQueue()                       // of the default device, or of the host backend
//	p, err := queue.Alloc(syclobj.USMShared, size, 0) // package memmgr has pools and reference counts
//	defer syclobj.Free(p)
//
// [Open] returns a [Runtime], which always has the host backend: one platform "host" with one device,
// whose filter string is "host", and page-backed memory. If the library is found, it also has SYCL, with
// the same types and methods. Without cgo, and on systems other than Linux, only the host backend exists,
// and functions that need SYCL return an error that matches [errors.ErrUnsupported].
//
// A process has one instance of the library. If it is already loaded, for example by an embedded Python,
// that instance is used. All Runtimes of a process share one table of devices, which is closed with the
// last of them. The library is never unloaded. [OpenContext] describes the search for it.
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
// Package usmarray/kernel launches kernels with arrays. Devices of the OpenCL backend take both, those of
// Level Zero SPIR-V only. The host backend, CUDA and HIP have no kernels.
//
// # Errors
//
// Functions and methods that fail return an [OpError] with the operation, the problem and the kind,
// which is one of the [Code] constants; errors.Is finds it. The errors of an unusable library match
// [ErrNoSYCL]. [BuildError] and [KernelError] describe failed builds and launches.
//
// On a nil pointer, methods that can return an error return ErrNil, Close does nothing, and a nil [Event]
// is complete. The other methods dereference nil, which is a Go run-time panic.
//
// # Threads
//
// All functions and methods may be called from several goroutines at once. A wait with a cancellable context
// polls the event. Cancelling ends the wait, not the work. If the runtime does not report an event's state,
// one more goroutine blocks in the runtime's own wait.
//
// # Fork and exit
//
// SYCL drivers do not survive a fork: the child must not call SYCL functions. Memory of the host backend
// is the child's own copy. exit ends a child that was forked after a Runtime was opened before the destructors of
// SYCL, which wait for threads that the child lacks. Nothing must be closed before the process exits.
//
// # C code
//
// The header usmb_sycl.h declares the same operations for C code of this module that runs without
// entering Go.
package syclobj
