// Package pymodule is the Python module usmbridge. It makes the arrays of this module available to
// Python programs, either built into an interpreter that Go hosts or as an extension module.
//
//	py, err := python.Start()
//	x, err := pymodule.ToPython(a)                       // a usmbridge.Array on the memory of a
//	defer x.Release()
//	out, err := py.Run("import numpy; y = numpy.asarray(x) * 2", python.Vars{"x": x}, "y")
//	b, err := pymodule.FromPython(out["y"].(*python.Object)) // an array on the memory of y
//
// In a program that links this package, "import usmbridge" works in the interpreter that
// interop/python starts. [Register] sets options before that.
//
// Python sees a package: the sources in internal/pypackage, and this C module as
// usmbridge._native in it. A wheel has them as files. A program that hosts Python carries them and
// serves them by an importer of its own (submodules, source text, resources, the distribution's
// metadata). Names, pickles and entry points are the same in both. docs/python.md is the guide for
// Python users; docs/architecture.md describes the C files.
//
// # Thread safety and errors
//
// All functions may be called from any goroutine, with or without the GIL. The type Array and the
// path of an exchange are C against the stable ABI: DLPack, the dictionary, the buffer protocol, views
// and deallocation. They do not enter Go, and therefore also work in a forked child process, where Go
// cannot run. Plain memory is allocated and converted in C there. All operations that need Go, SYCL or
// dpnp raise RuntimeError.
//
// FromPython and ToPython return errors of package python, such as a *python.Error for an exception,
// and usmarray.ErrLayout for an array that Python cannot represent.
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
