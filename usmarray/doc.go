// Package usmarray provides typed, strided arrays over reference-counted memory. It exports an array
// without copying as a __sycl_usm_array_interface__ dictionary (SUAI, [USMInterface]) and as a DLPack
// tensor, imports both, and converts between them on the same memory.
//
//	rt, err := syclobj.Open()                                        // SYCL, or the host backend
//	memory, err := memmgr.Default(rt.DefaultQueue(), syclobj.USMShared)
//	a, err := usmarray.FromSlice(memory, []float32{1, 2, 3, 4}, []int{2, 2})
//	defer a.Release()
//	t, err := a.DLPack()                                             // to a consumer of DLPack
//	b, err := usmarray.FromDLPack(rt, t)                             // from a producer; the same memory
//
// An [Array] is a buffer of package memmgr, an element type ([DataType]) and a [Layout]: shape, strides
// and offset, all in elements. Indexing, transposing, reshaping and broadcasting return views of the same
// memory by NumPy's rules, and fail with [ErrLayout] where NumPy would copy. Copies work between plain
// host memory and every kind of unified shared memory, of any device and context. [DLPackToUSMInterface]
// and [USMInterfaceToDLPack] convert between the protocols in one call. [Array.AsType] describes the
// conversion of element types, [USMInterface.Check] the invalid dictionaries.
//
// # Ownership
//
// Functions named New…, From…, Zeros, Full and Arange, and the methods Copy, AsType, ToDevice and Retain,
// return arrays that own a reference of the memory; Release drops it. [WrapBuffer] and views borrow: they
// are valid while some owner is, and Retain makes an owner of one. The garbage collector frees nothing;
// memmgr's report of live memory lists arrays that were not released.
//
// A DLPack tensor of [Array.DLPack] holds its own reference, which its deleter drops on any thread. A
// dictionary holds none: keep the array until the consumer is done. [FromDLPack] takes over the tensor on
// success, once, and leaves it to the caller on error. [FromUSMInterface] does the same with the function
// that releases the owner.
//
// # Threads and pending work
//
// Arrays may be used from several goroutines. Element access is not synchronized. An operation holds the
// memory while it runs, so that a concurrent Release takes effect afterwards.
//
// Filling device memory, and copying between contiguous device memories of one context, is submitted to
// a queue and left pending. All access through this package waits for pending work first, and so do
// exports, unless their [ExportOptions] request otherwise. Three methods synchronize explicitly:
// [Array.Wait] blocks until the pending work is complete; [Array.PendingEvent] returns an event of it
// without blocking; [Array.Synchronize] also waits for the memory's own queue. Work that other libraries
// submit must finish before they release the memory.
//
// # Errors and misuse
//
// Errors are *[OpError] and match this package's Err… variables, and the variables of memmgr, dlpack and
// syclobj with the same meaning. Use after release and other mistakes in the program are panics with a
// *[UseError], also for nil arrays.
//
// Release may be called repeatedly, so that it can be deferred. A memmgr.Buffer counts references that it
// cannot distinguish: one Release too many drops the reference of another owner, whose next use panics.
// For an array that was released, whose memory has lost its last owner, or that is the zero Array, only
// the description (Shape, DataType, Size and similar), Valid and printing are allowed.
//
// # Without SYCL
//
// On the host backend everything works except the dictionary; DLPack exports its arrays as kDLCPU.
// Without cgo, and on systems other than Linux, exchange functions return an error that matches
// errors.ErrUnsupported; arrays, views, copies and printing work.
package usmarray
