// Package pymodule is the Python module usmbridge: the arrays of this library
// for Python programs, built in to an interpreter that Go hosts or loaded as an
// extension module.
//
// In a program that links this package, "import usmbridge" works in the interpreter
// that interop/python starts. [Register] sets options before that. [ToPython] shows a
// Go array to Python and [FromPython] a Python array to Go, on the same memory.
//
// # What is C and what is Go
//
// The type Array and everything on the way of a hand-over is C against the
// stable ABI: __dlpack__, from_dlpack, the C exchange API, the dictionary of
// __sycl_usm_array_interface__, the buffer protocol, views, deallocation. It
// runs without entering Go, and so it still works in a forked child process,
// where Go cannot run; what needs Go there (allocation, devices, a dictionary
// of others) raises RuntimeError.
//
// Go is asked for memory, for the rules of a foreign dictionary, for the text of
// an array, for devices and counters. The interpreter's lock (GIL) is dropped
// meanwhile, except for the rules of a dictionary, which take a fraction of a
// microsecond.
//
// The C files stand in floors, each on those before it; a test holds that (a file
// includes the headers it uses, and none of a floor above its own):
//
//	support      support.c (names, errors, arguments), dtype.c, typeinfo.c (what is remembered
//	             about the types of others), dpctl.c (dpctl where it is loaded), device.c,
//	             syclref.c (the forms of a syclobj, which queue an array names)
//	storage      storage.c (cells whose end needs Python), kept.c (memory
//	             given back, for the next arrays), tensor.c (DLPack tensors of
//	             others)
//	arrays       array.c
//	memory       create.c (empty, zeros, where memory is wanted), copy.c
//	protocols    promote.c (the type that holds two), element.c (elements as Python's
//	             numbers), operators.c, numpy.c (what NumPy asks), assign.c, retype.c
//	             (view, astype), full.c (ones, full, …_like), pickle.c, index.c, export.c, arrow.c (Arrow's C structs),
//	             arrow_in.c, exchange.c, import.c, buffer.c, suai.c, suai_in.c, sequence.c, asarray.c,
//	             cute_tensor.c, cute.c, numba.c, handover.c (ToPython,
//	             FromPython), share.c (other processes)
//	the module   array_type.c (attributes and methods of Array), module.c, package.c (the
//	             built-in package around it)
//
// exports_cgo.go, exports_assign_cgo.go, exports_cute_cgo.go and
// exports_interprocess_cgo.go hold what C calls;
// handover_cgo.go and register_cgo.go call C.
//
// # The package
//
// Python sees a package: sources in interop/internal/pypackage around this C module,
// which is usmbridge._native in it. A wheel has them as files. A program that hosts
// Python carries them, and an importer of its own serves them (submodules, source
// text, resources, the distribution's metadata), so that both are the same code:
// names, pickles and entry points do not differ.
//
// # Ownership
//
// An Array owns one reference of its memory's owner cell (internal/owner), as does
// each DLPack tensor made of it; views share the cell. Memory of others has a
// cell whose end gives the other owner up: a Python object, a buffer, a DLPack
// tensor. Its last reference may go on any thread. Where that thread holds the GIL, a
// consumer's deleter included, the owner is given up there and then, so that del of the
// consumer's object releases the source at once. Elsewhere
// the cell waits on a list that every entry holding the GIL empties, and that a
// goroutine of its own empties when nobody else does; ends within ends beyond a depth
// wait there too, for the outermost one. A DLPack deleter of ours
// therefore never waits for the GIL. After Python's atexit hooks have run, what
// would need Python is leaked on purpose.
//
// Arrays whose memory belongs to a Python object take part in cycle collection: an
// owner that keeps arrays made of itself goes with them, as long as nobody but arrays
// (an exported tensor, Go) holds the memory.
//
// release() closes an array: every later use of it is a ValueError, while operations that
// have begun go on. It drops the array's reference of the memory at once, or when the last
// operation, buffer and result of a compiled function that hold the array end. Views and
// exported tensors have references of their own. A consumer of __sycl_usm_array_interface__,
// of __array_interface__ or of the C exchange API's borrowed tensor has an address and keeps
// the Array object alive, nothing else. Once one of them was asked for, release() therefore
// keeps the memory until the object is deallocated. An address without the object (the
// numbers in a dictionary, _pointer) is not valid after release() or deallocation.
//
// The module belongs to the main interpreter; a subinterpreter's import is an
// ImportError.
//
// # Memory that is kept
//
// The last Array of memory from a shared pool keeps it, up to 4 MiB in 64 blocks, for the
// next array of that size and kind, which then needs no entry into Go. stats(), trim() and
// the end of Python give it back first, and so do a request that finds no memory and a Go
// program that reads, trims or closes its pools (memmgr.AddCache). Nothing is kept that
// was exported, is worked on, or is recorded with its stack, nor with USMBRIDGE_DEBUG or
// [SetResource].
//
// # Memory of a call
//
// Where the context of a call from Go (python.Object.CallContext, package executor) carries an
// arena (memmgr/arena), the arrays that the call's code makes, by empty and its sisters,
// copies, conversions and asarray, have their memory from it: counted and bounded with the
// request, of its tenant, tagged "python", waiting for room as long as the call may run. It is
// what the arena's Options.Choose says, else [SetResource], else the shared pools. Nothing of
// it is kept for other calls. The innermost call with a context on the thread decides; a thread
// that the code starts is in no call, and its arrays have memory as without an arena. So do
// arrays made with interprocess=. Memory that was wrapped is nobody's but its owner's.
//
// An Array holds its memory as always, whatever becomes of the arena: one that the code put
// into a global is whole after the arena's end, where it is reported as left. After the end
// the code of a call that still runs can make no array (RuntimeError). Results are the
// caller's, in memory of the arena: release them, or arena.Own them, or arena.Keep what
// outlives the request.
//
// # Memory of several processes
//
// With interprocess=True or "readonly" memory comes from the pools of package segment
// (segment.Default), one for each place and audience, and is never kept: the host
// backend's, and USM of each kind where that can be shared, which a trial decides at first
// use; its words are in the RuntimeError else. Array.interprocess says True, "readonly" or
// False of whatever lies in such memory, and a view says what its array says. What is made
// beside such an array (copy(), zeros_like) is ordinary memory unless it is told. A process
// that is forked shares these pages with its parent, where it has copies of others.
//
// Such arrays travel by package share: usmbridge.share publishes and attaches them, and
// multiprocessing's pickler (not pickle.dumps) sends a handle in their place, views and
// read-only ones as they are. The servers start with the first array that is sent, served
// or received, and not before: one for handles, a second one in a process that receives USM,
// which alone loads SYCL for that, and one for each share.serve. A connection is made at the
// first handle of a maker, and kept; share.attach keeps one for each path. An array that was
// received is passed on by its maker, or, once that process has ended, by the process that has
// it. A handle is good for one opening, within ten minutes;
// a child of multiprocessing that ends waits up to ten seconds for those who it sent arrays
// to. trim() unmaps what others lend and nobody has open. Errors: ReferenceError for a stale
// handle, ConnectionError, TimeoutError, KeyError for an unknown name, BufferError for
// memory that cannot be shared, ValueError for bytes that are no handle.
//
// In a forked child received memory is not mapped: its arrays raise RuntimeError. An array that is
// sent to a forked child by value becomes plain memory of Python there, whatever it was. One that
// is sent by handle cannot be opened: the child gets an Array of which every use but repr() raises
// RuntimeError. Unpickling itself must not fail, because a worker of multiprocessing.Pool ends
// without an answer then, and its caller waits forever. Such a handle stays unopened for its ten
// minutes. Children of
// multiprocessing's fork server are executed anew when the server has the module, because
// Go cannot run in a fork; so they are where Go hosts Python.
//
// # Queues
//
// sycl_queue, and syclobj in the dictionary, are the SyclQueue that was given at
// creation or at import, the same object, which views and copies beside the array
// keep. Of a capsule, or of an object that only gives one, a SyclQueue is made once.
// Where no queue was named (a context, a filter string, plain DLPack) it is the one
// that dpctl keeps for the memory's context and device, which dpnp uses too, as soon
// as dpctl is loaded; without dpctl, a light object on a queue of this library's.
//
// An Array owns the object that was named. Only dpctl's own SyclQueue and the light
// object are ever kept, neither of which can refer to an Array: no cycle forms, and
// the collector need not know. Go never holds the object: a buffer that was allocated
// or used on a queue has a reference of its own to the sycl::queue, in memmgr's table
// of queues. In a forked child the object is leaked, since SYCL cannot be called there.
//
// # Order of work
//
// Work that this library submitted on the memory is waited for (the GIL dropped)
// before the dictionary, the buffer protocol or a kDLCPU tensor is given out;
// __dlpack__(stream=q) puts a barrier into q instead, and stream=-1 does nothing.
// Of work of others is known what they tell: the queue of the exchange API, whose
// work so far becomes pending work; the queue that an array names (given, or that of
// a dictionary or of dpnp's array), which the host waits for before it reads, writes
// or shows the memory, and behind which stream=q is put; and the queue that dpctl
// keeps, which the host waits for once any memory of that place was shown under it.
// So what dpnp computes into an array of ours is seen by asnumpy, memoryview and Go
// without a wait of the user's. A consumer on yet another queue finishes first.
// A type is asked once whether it has the exchange API, as DLPack allows: its table
// lives as long as the process. A tensor is taken by that table only from an object of
// exactly torch.Tensor or torch.nn.Parameter whose requires_grad, is_conj() and is_neg()
// are false. Everything else, subclasses included, is asked by __dlpack__, which makes the
// checks that the table skips. Other producers finish their work first, and a
// consumer finishes before it gives the tensor up. Memory that was exported by DLPack
// is used again only behind a barrier. The dictionary's consumers keep the object
// until their work ends, as dpctl's own memory wants it, and as dpctl's and dpnp's
// arrays do by a host task: that memory has no barrier.
//
// # Submodule cute
//
// usmbridge.cute is the Python face of dlpack/cute, whose rules and texts it has:
// from_dlpack(tensor, assumed_align=None, use_32bit_stride=None, *,
// leading="unique", unit_strides=False) gives a Tensor with a fully static layout,
// from_dlpack_dynamic the implicit conversion. A Tensor owns one reference of its
// memory's cell until release or deletion; marks change it in place and return it.
// shape and stride hold numbers for dynamic modes too, as CuTe DSL's do, the
// strides those of the layout as marked;
// dynamic_shapes_mask and dynamic_strides_mask say which those are, and the latter,
// unlike CuTe DSL's, counts the strides that mark_compact_shape_dynamic made
// dynamic. Any device whose memory has addresses will do; USM is "gmem", except
// host USM, which is "generic" as plain host memory is. A conversion waits for
// nothing, as in CuTe DSL. Wrong values are a ValueError (CuTe DSL's RuntimeError),
// element types that CuTe lacks and arguments of a wrong type a TypeError, numbers
// beyond 64 bits an OverflowError, what DLPack cannot take a BufferError.
//
// # Arrow
//
// __arrow_c_array__ gives an array of one axis as values (bool as arrow.bool8), one of
// more as arrow.fixed_shape_tensor with a row for each index of the first axis, in the
// same memory; elements in another order than C's are copied. What it gives holds a
// reference of the cell, which goes with the consumer's last release, on any thread, and
// each child has its own. __arrow_c_device_array__ says CPU for memory that the host can
// read, after a wait, and ONEAPI for device memory, with the event of work that this
// library has pending as sync_event; no consumer that we know takes the latter.
//
// asarray imports an object by the first of these that it has: __sycl_usm_array_interface__,
// DLPack, a buffer, __array_interface__ or __array_struct__, __array__, Arrow. An __array__ may
// copy: asarray calls it with copy=False first, then it asks Arrow for memory without a copy, and
// only where copy is not False does it call numpy.asarray, which may copy. An __array__ that takes
// no copy, as before NumPy 2, counts as one that copies. With copy=False an object that no
// protocol shares is an error, the ValueError of its __array__ where it has one. Arrow is also used
// where DLPack, which all arrays of pyarrow have, refuses.
//
// By Arrow asarray takes values, lists of a fixed size and arrow.fixed_shape_tensor in the
// CPU's memory, at any alignment, without nulls in what is shown. The Array is read-only, as
// Arrow's memory is, and its memory's end releases the producer's struct, once, with the GIL. Booleans are
// bits in Arrow: they are copied to bytes, unless copy=False (arrow.bool8 is taken as it
// is). Strings, dictionaries, times, decimals, structs and lists of any length are a
// TypeError; nulls, other devices and structs that don't fit a BufferError.
//
// # Numbers and elements
//
// asarray(dtype=), full, full_like, fill and assignment convert by one rule. The elements of
// arrays, of 0 dimensions too, are converted as by astype (package usmarray). Numbers, which are
// Python's numbers and NumPy's scalars, alone or in a sequence, follow NumPy's asarray of Python's
// numbers: a fraction is cut toward zero, a number outside the range of an integer type is an
// OverflowError, NaN in an integer type a ValueError, and a complex number in a real type a
// TypeError. NumPy itself wraps its scalars: asarray of a 0-d array does so. A sequence may mix
// arrays with sequences of the same shape.
//
// # Tests with the race detector
//
// Programs built with -race that used dpnp or dpctl can crash at their exit. Their TestMain should
// end with syscall.Exit(m.Run()). The documentation of package python has the reason.
//
// # Errors in Python
//
// BufferError is what DLPack cannot say or take, ValueError a value that breaks
// the rules of a dictionary, a shape or an argument, TypeError a wrong type,
// OverflowError a pointer that is no address, MemoryError exhausted memory with
// the manager's account of it, RuntimeError a failure of the runtime. What a
// producer raises in its own __dlpack__ or in its own dictionary passes
// unchanged.
//
// What a __sycl_usm_array_interface__ can be, and what it gives:
//
//	not a dict, or a subclass                          TypeError
//	the attribute absent                               TypeError
//	the attribute raising                              that exception
//	version absent, or an integer other than 1         ValueError
//	version no integer                                 TypeError
//	data absent, no buffer protocol                    ValueError
//	data no tuple or list                              TypeError
//	data of other than two items                       ValueError
//	pointer no integer                                 TypeError
//	pointer negative or above 2^64-1                   OverflowError
//	pointer null                                       ValueError
//	pointer wild, not USM, of another context          ValueError
//	span beyond either end of the allocation           ValueError
//	shape absent, a negative extent, too many          ValueError
//	shape no tuple or list, or not of integers         TypeError
//	product or span beyond the address space           ValueError
//	strides of another length                          ValueError
//	strides or offset not of integers                  TypeError
//	typestr absent, of another byte order, object,
//	void, text, of an unknown size                     ValueError
//	typestr no string                                  TypeError
//	typedescr no list of tuples                        TypeError
//	typedescr structured, or at odds with typestr      ValueError
//	syclobj absent                                     ValueError
//	syclobj none of the six forms                      TypeError
//	a capsule of another name, or taken before         ValueError
//	a filter string that no device answers to          ValueError
//	a device or context that does not exist any more   ValueError
//
// While an Array made of an owner lives, the owner is held, and a span of it that the
// Array's memory covers is not looked up again when the same object is imported once
// more: only that syclobj still names that context is asked. Nothing is remembered by an
// address, and nothing longer than the Array.
//
// The allocation that a pointer belongs to is known for arrays of dpctl and
// dpnp and for our own. For others the first and the last byte are looked up in
// the context; a span that leaves one allocation and ends in a neighbouring one
// of the same kind cannot be told from a good one.
package pymodule
