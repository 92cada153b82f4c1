// Package pymodule is the Python module usmbridge: the arrays of this library
// for Python programs, built in to an interpreter that Go hosts or loaded as an
// extension module.
//
// A Go program calls [Register] before it starts the interpreter
// (interop/python); "import usmbridge" then works in it. [ToPython] shows a Go
// array to Python and [FromPython] a Python array to Go, on the same memory.
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
//	support      support.c (names, errors, arguments), typeinfo.c (what is remembered
//	             about the types of others), device.c, syclref.c (the forms of a syclobj)
//	storage      storage.c (cells whose end needs Python), tensor.c (DLPack tensors of
//	             others)
//	arrays       array.c
//	memory       create.c (empty, zeros, where memory is wanted), copy.c
//	protocols    index.c, export.c, exchange.c, import.c, buffer.c, suai.c, suai_in.c,
//	             sequence.c, asarray.c, cute_tensor.c, cute.c, handover.c (ToPython,
//	             FromPython)
//	the module   array_type.c (attributes and methods of Array), module.c
//
// exports_cgo.go and exports_cute_cgo.go hold what C calls; handover_cgo.go and
// register_cgo.go call C.
//
// # Ownership
//
// An Array owns one reference of its memory's owner cell (memmgr/owner), as does
// each DLPack tensor made of it; views share the cell. Memory of others has a
// cell whose end gives the other owner up: a Python object, a buffer, a DLPack
// tensor. Its last reference may go on any thread, with or without the GIL: then
// the cell waits on a list that every entry holding the GIL empties, and that a
// goroutine of its own empties when nobody else does. A DLPack deleter of ours
// therefore never waits for the GIL. After Python's atexit hooks have run, what
// would need Python is leaked on purpose. Arrays are not seen by Python's cycle
// collector, since C may hold their cells too: an owner that keeps the array made
// of itself lives until it lets the array go.
//
// The module belongs to the main interpreter; a subinterpreter's import is an
// ImportError.
//
// # Order of work
//
// Work that this library submitted on the memory is waited for (the GIL dropped)
// before the dictionary, the buffer protocol or a kDLCPU tensor is given out;
// __dlpack__(stream=q) puts a barrier into q instead, and stream=-1 does nothing.
// Of work of others is known what they tell: the queue of the exchange API, whose
// work so far becomes pending work, and the sycl_queue of dpnp's arrays, which is
// waited for before the host reads what from_dlpack took of them. A type is asked
// once whether it has the exchange API, as DLPack allows: its table lives as long as
// the process. Other producers
// finish their work first, and a consumer finishes before it gives the tensor up. Memory that was exported is used again only behind a barrier.
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
// The allocation that a pointer belongs to is known for arrays of dpctl and
// dpnp and for our own. For others the first and the last byte are looked up in
// the context; a span that leaves one allocation and ends in a neighbouring one
// of the same kind cannot be told from a good one.
package pymodule
