// Package usmarray provides typed, strided arrays over reference-counted memory. It exports an array
// without copying as a __sycl_usm_array_interface__ dictionary (SUAI, [USMInterface]) and as a DLPack
// tensor, imports both, and converts between them on the same memory.
//
// # Arrays
//
// An [Array] is a buffer of package memmgr, an element type ([DataType]) and a [Layout]: shape, strides
// and offset, all in elements. Indexing, transposing, reshaping and broadcasting return views of the
// same memory by NumPy's rules, and fail with [ErrLayout] where NumPy would copy. Copies work between
// plain host memory and every kind of unified shared memory, of any device and context, with any strides
// on both sides.
//
// # Exchange
//
// [Array.DLPack] and [Array.USMInterface] export an array; [FromDLPack] and [FromUSMInterface] import
// one. [DLPackToUSMInterface] and [USMInterfaceToDLPack] convert a tensor to a dictionary and back in
// one call.
//
// # Ownership
//
// Functions named New…, From…, Zeros, Full and Arange, and the methods Copy, AsType, ToDevice and
// Retain, return arrays that own a reference of the memory; Release drops it. [WrapBuffer] and views
// borrow: they are valid while some owner is, and Retain makes an owner of one. The garbage collector
// frees nothing; memmgr's report of live memory lists arrays that were not released.
//
// A DLPack tensor of [Array.DLPack] holds its own reference, which its deleter drops on any thread. A
// dictionary holds none: keep the array until the consumer is done. [FromDLPack] takes over the tensor
// on success, once, and leaves it to the caller on error. [FromUSMInterface] does the same with the
// function that releases the owner.
//
// # Errors and misuse
//
// Errors of this package are [*OpError] and match its Err… variables, and the variables of memmgr,
// dlpack and syclobj with the same meaning. Errors that only a mistake in the program causes, such as
// use after release, are panics with a [*UseError], also for nil arrays.
//
// Release may be called repeatedly, so that it can be deferred. A memmgr.Buffer counts references that
// it cannot distinguish: if others hold some, one Release too many drops one of theirs, and their next
// use panics. For an array that was released, whose memory has lost its last owner, or that is the zero
// Array, only the description (Shape, DataType, Size and similar), Valid and printing are allowed. The
// zero Array has size 0.
//
// # Threads and pending work
//
// Arrays may be used from several goroutines. Element access is not synchronized. An operation holds the
// memory while it runs, so that a concurrent Release takes effect afterwards.
//
// Filling device memory, and copying between contiguous device memories of one context, is submitted to
// a queue and left pending. All access through this package waits for pending work first, and so do
// exports, unless their options request otherwise ([ExportOptions]). Three methods synchronize
// explicitly: [Array.Wait] blocks until the pending work is complete; [Array.PendingEvent] returns an
// event of it without blocking; [Array.Synchronize] also waits for the memory's own queue. Work that
// other libraries submit must finish before they release the memory.
//
// # Conversion of element types
//
// [Array.AsType], [Array.ConvertFrom], and asarray and similar functions in Python convert alike: as
// NumPy does, and as ml_dtypes does for the types that NumPy lacks, wherever they define a result.
//
//	integer to integer      wraps: the low bits are kept, also of int4 and similar
//	anything to bool        true unless it is 0; NaN is true; a complex number is true
//	                        if one of its parts is
//	bool to anything        0 and 1
//	to floating point       rounded to nearest even, once
//	above the largest       infinity if the format has it, else NaN if it has that
//	                        (float8), else the largest number (float6, float4)
//	NaN                     NaN; 0 in float6 and float4, which have no NaN
//	to float8_e8m0fnu       the nearest power of two, the larger of two equally near;
//	                        all but positive finite numbers become NaN
//	floating to integer     truncated; out-of-range values become the nearest end of
//	                        the range, and NaN 0
//	real to complex         with imaginary part 0
//	complex to complex      the parts, each as real numbers
//	complex to real         refused: [ErrType]
//
// Where NumPy leaves the result to the processor (floating to integer out of range), it is the same on
// every machine here. ml_dtypes converts float64 and wide integers by way of float32 and so rounds twice,
// and it rounds all numbers between the two smallest powers of float8_e8m0fnu up; here the result is the
// nearest. Packed and padded sub-byte elements have the same values.
//
// # Invalid dictionaries
//
// [FromUSMInterface] refuses the following, in this order, before any call of the SYCL runtime that
// could end the process. The last column is the Key of the [OpError].
//
//	version missing, or not 1                        ErrInterface  version
//	negative or too many dimensions                  ErrInterface  shape
//	product of the dimensions too large              ErrInterface  shape
//	typestr missing, big-endian, without byte order  ErrInterface  typestr
//	typestr of objects, text, dates, void            ErrInterface  typestr
//	typestr of a size that array libraries lack      ErrInterface  typestr
//	typedescr with fields, or of another type        ErrInterface  typedescr
//	strides not one per dimension                    ErrInterface  strides
//	null pointer, even for size 0                    ErrInterface  data
//	span too large, or outside the address space     ErrInterface  shape, data
//	span outside the owner's allocation              ErrInterface  data
//	syclobj missing, nil, or several forms set       ErrInterface  syclobj
//	filter string malformed, or of no device         ErrInterface  syclobj
//	context or queue of the host backend, or closed  ErrInterface  syclobj
//	first byte is not USM of that context            ErrNotUSM     data
//	last byte of another kind than the first         ErrNotUSM     data
//
// Invalid Python types (a shape that is not a tuple of integers, a str for version) cannot occur in Go;
// the Python module refuses them. One case cannot be detected if the dictionary's owner is unknown: a
// span that begins in one allocation and ends in a neighbouring one of the same kind. Set
// [USMInterface.Allocation] if it is known.
//
// # Limits of DLPack
//
// [Array.DLPack] refuses, with [ErrExchange]: memory outside the default context of its platform (the
// error suggests a copy), read-only memory as a legacy tensor, packed elements that begin within a byte,
// and devices other than kDLCPU and kDLOneAPI. [FromDLPack] refuses a device index out of range, pointers
// that are not USM of the default context of that device's platform, spans that leave their allocation,
// and other device types.
//
// # Without SYCL
//
// On the host backend everything works except the dictionary; DLPack exports its arrays as kDLCPU.
// Without cgo, and on systems other than Linux, exchange functions return an error that matches
// [errors.ErrUnsupported]; arrays, views, copies and printing work.
package usmarray
