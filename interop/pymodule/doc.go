// Package pymodule is the Python module usmbridge. It makes the arrays of this module available to
// Python programs, either built into an interpreter that Go hosts or as an extension module.
//
// In a program that links this package, "import usmbridge" works in the interpreter that
// interop/python starts. [Register] sets options before that. [ToPython] shows a Go array to Python,
// and [FromPython] a Python array to Go, on the same memory.
//
// # Division between C and Go
//
// The type Array and the path of an exchange are C against the stable ABI: __dlpack__, from_dlpack,
// the C exchange API, the dictionary of __sycl_usm_array_interface__, the buffer protocol, views and
// deallocation. They do not enter Go, and therefore also work in a forked child process, where Go
// cannot run. Operations that need Go (allocation, devices, foreign dictionaries) raise RuntimeError
// there.
//
// Go provides memory, the rules of a foreign dictionary, the text of an array, devices and counters.
// The GIL is released during such a call, except for the rules of a dictionary, which take a
// fraction of a microsecond.
//
// The C files are ordered: a file uses functions of files before it only, which a test holds.
//
//	support.c     names, errors, calls into Go, the reading of arguments
//	dtype.c       element types, and a cache of facts about the types of other libraries
//	sycl.c        Device, dpctl's classes, the forms of a syclobj
//	storage.c     cells whose end needs Python; memory kept for the next arrays
//	array.c       the life, layout and views of arrays
//	create.c      new memory and its place, copies, writing into arrays
//	buffer.c      the buffer protocol
//	dlpack.c      __dlpack__, tensors of other libraries, from_dlpack, the C exchange API
//	suai.c        __sycl_usm_array_interface__, out and in
//	arrow.c       the Arrow C data interface, out and in
//	numpy.c       NumPy's array protocols and ml_dtypes
//	asarray.c     arrays from any object, from numbers and from sequences
//	index.c       subscripts, assignment to elements, reshape, transpose
//	full.c        ones, full and the *_like functions
//	pickle.c      pickles
//	share.c       other processes
//	cute.c        the submodule usmbridge.cute
//	numba.c       functions that Numba compiles
//	handover.c    ToPython, FromPython
//	array_type.c  the type Array: attributes, methods, operators, elements as numbers
//	module.c      the module, and the built-in package around it
//
// C calls the functions of exports_cgo.go, exports_cute_cgo.go and
// exports_interprocess_cgo.go. handover_cgo.go and register_cgo.go call C.
//
// # The package
//
// Python sees a package: the sources in internal/pypackage, and this C module as
// usmbridge._native in it. A wheel has them as files. A program that hosts Python carries them and
// serves them by an importer of its own (submodules, source text, resources, the distribution's
// metadata). Names, pickles and entry points are the same in both. docs/python.md is the guide for
// Python users; docstrings.h and the package's sources have the texts of help().
//
// # Ownership
//
// An Array owns one reference of its memory's owner cell (internal/owner), and so does each DLPack
// tensor made of it; views share the cell. Imported memory has a cell whose end releases the other
// owner: a Python object, a buffer, a DLPack tensor. The last reference can be dropped on any
// thread. A thread with the GIL releases the owner immediately. Otherwise the cell waits on a list
// that every entry with the GIL empties, and that a goroutine empties if there is no such entry. A
// cell that ends during the end of another one waits there beyond a certain depth. DLPack deleters
// of this package therefore never wait for the GIL. After Python's atexit handlers, owners that
// need Python are leaked on purpose.
//
// Go never holds a Python queue object. A buffer that was allocated or used on a queue has a
// reference of its own to the sycl::queue, in memmgr's table of queues.
//
// # Memory of a call
//
// If the context of a call from Go (python.Object.CallContext, package executor) carries an arena
// (memmgr/arena), the arrays that the call makes in Python (empty and its relatives, copies,
// conversions, asarray) allocate from it. They are counted and limited with the request, have its
// tenant and the tag "python", and wait for memory no longer than the call may run. The memory is
// of the arena's Options.Choose, else of [SetResource], else of the shared pools. The module does
// not keep it for other calls.
//
// The innermost call with a context on the thread decides. A thread that Python code starts has no
// call. Arrays made with interprocess= and wrapped memory do not belong to the arena.
//
// An Array keeps its memory beyond the end of the arena: one that the code stored in a global stays
// valid and is reported as left over. After the end of the arena, code of a call that still runs
// cannot make arrays (RuntimeError). Results belong to the caller, in memory of the arena: release
// them, pass them to arena.Own, or to arena.Keep if they outlive the request.
//
// # Memory of several processes
//
// interprocess=True or "readonly" allocates from the pools of package segment (segment.Default), one
// for each device and audience: the host backend's, and USM of each kind if a trial at first use
// shows that it can be shared. Package share carries such arrays. Its servers start when the first
// array is sent, served or received: one for handles, a second one in a process that receives USM,
// which alone loads SYCL for it, and one for each share.serve. A connection to a maker is made with
// its first handle, and kept; share.attach keeps one for each path.
//
// # Tests with the race detector
//
// Programs built with -race that used dpnp or dpctl can crash at their exit. Their TestMain should
// end with syscall.Exit(m.Run()). The documentation of package python has the reason.
package pymodule
