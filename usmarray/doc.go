// Package usmarray holds typed, strided arrays over counted memory and hands
// them on, without copying, as a __sycl_usm_array_interface__ dictionary (SUAI,
// [USMInterface]) and as a DLPack tensor; it takes either in, and converts
// between the two on the same memory.
//
// # Arrays
//
// An [Array] is a buffer of package memmgr, an element type ([DataType]) and a
// [Layout]: shape, strides and offset, all in elements. Indexing, transposing,
// reshaping and broadcasting make views of the same memory by NumPy's rules and
// fail with [ErrLayout] where NumPy would have to copy. Copies work between
// plain host memory and every kind of unified shared memory, of any device and
// context, with any strides on both sides.
//
// # Ownership
//
// What New…, From…, Copy and Retain return owns a reference of the memory, and
// Release ends it. Views borrow: they are valid while some owner is, and Retain
// makes an owner of one. The garbage collector frees nothing; memmgr's report of
// live memory names what was forgotten.
//
// A DLPack tensor made by [Array.DLPack] holds a reference of its own, dropped
// by its deleter on any thread. A dictionary holds none: keep the array until
// its consumer is done. [FromDLPack] takes the tensor over on success, once, and
// leaves it to the caller on error; [FromUSMInterface] does the same with the function
// that releases the owner.
//
// # Errors and misuse
//
// All packages of this module keep one convention. A typed error names the
// operation (Op), answers to a sentinel or code of its kind through errors.Is, and
// carries the cause (Err). What a correct program can meet is an error; what only
// a mistake in it brings about, such as use after release, panics with a
// *UseError, on nil values too. Whoever owns a reference may release it again
// without harm, so that Release can be deferred; but a memmgr.Buffer counts
// references that it cannot tell apart, so while others hold some a release too
// many ends one of theirs, and their next use panics.
//
// Errors of this package are [*OpError] and answer to the sentinels of memmgr,
// dlpack and syclobj that mean the same as its own. Of an array that was released,
// whose memory has lost its last owner, or that was never made, only the
// description (Shape, DataType, Size and the like), Valid and printing remain. The
// zero Array has size 0.
//
// # Threads and pending work
//
// Arrays may be used from several goroutines; the elements are guarded by
// nobody. An operation holds the memory while it runs, so that a Release beside it
// takes effect afterwards. Filling device memory, and copying between dense device
// memories of one context, is submitted and not waited for. All access through
// this package waits for such work first, and so does every export, unless its
// options say otherwise ([ExportOptions]). Work that others submit is theirs to
// finish before they let go of the memory.
//
// # What a conversion means
//
// One meaning for all ways to another element type ([Array.AsType],
// [Array.ConvertFrom], and asarray and its sisters in Python): NumPy's, and that
// of ml_dtypes for the types that NumPy lacks, wherever they define one.
//
//	integer to integer      wraps: the low bits are kept, of int4 and the like too
//	anything to bool        true unless it is 0; NaN is true, a complex number
//	                        is when one of its parts is
//	bool to anything        0 and 1
//	to floating point       rounded to nearest even, once
//	beyond the largest      infinity where the format has it, else NaN where it
//	                        has that (float8), else the largest (float6, float4)
//	NaN                     NaN; in float6 and float4, which have none, 0
//	to float8_e8m0fnu       the nearest power of two, the larger of two; what is
//	                        not positive and finite is NaN
//	floating to integer     the fraction is cut, what lies outside the range
//	                        becomes the nearest end of it, and NaN 0
//	real to complex         with imaginary part 0
//	complex to complex      the parts, each as real numbers
//	complex to real         refused: [ErrType]
//
// Where NumPy leaves the result to the processor (floating to integer out of
// range) it is the same here on every machine. ml_dtypes goes through float32
// where float64 and wide integers become its types, and so rounds twice, and
// rounds all between the two smallest powers of float8_e8m0fnu up; here it is the
// nearest. Sub-byte elements mean the same packed and padded.
//
// # What a dictionary may not be
//
// [FromUSMInterface] refuses, before anything that could end the process is
// asked of the SYCL runtime, and in this order (Key is that of [OpError]):
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
//	syclobj missing or nil                           ErrInterface  syclobj
//	filter string malformed, or of no device         ErrInterface  syclobj
//	context or queue of the host backend, or closed  ErrInterface  syclobj
//	first byte no USM of that context                ErrNotUSM     data
//	last byte of another kind than the first         ErrNotUSM     data
//
// Wrong Python types (a shape that is no tuple of integers, a str for version)
// cannot arise here and are the Python module's to refuse. What cannot be told:
// a span that begins in one allocation and ends in a neighbouring one of the
// same kind, when the dictionary's owner is unknown; set
// [USMInterface.Allocation] where it is known.
//
// # What DLPack cannot carry
//
// [Array.DLPack] refuses, with [ErrExchange]: memory outside the default context
// of its platform (the error offers a copy), read-only memory as a legacy
// tensor, packed elements that begin within a byte, devices other than kDLCPU
// and kDLOneAPI. [FromDLPack] refuses a device index out of range, pointers
// that are not USM of the default context of that device's platform, spans that
// leave their allocation, and other device types.
//
// # Without SYCL
//
// Everything but the dictionary works on the host backend, whose arrays are
// kDLCPU to DLPack. Without cgo, and on systems other than Linux, exchange
// answers an error that is [errors.ErrUnsupported]; arrays, views, copies and
// printing stay.
package usmarray
