// Package dlpack is the DLPack 1.3 C ABI for Go: it builds, checks, takes over
// and deletes managed tensors, and describes their element types and devices.
// It knows no arrays, no SYCL and no Python, and imports nothing of this
// module, so that any Go library can wrap its memory and exchange it with C
// code through an unsafe.Pointer.
//
// # Exchanging with C
//
// Out: [Export] builds a tensor around a [View] of memory and an [Owner] that
// keeps the memory; [Tensor.Detach] gives the pointer to hand over. In:
// [Import] takes over a pointer that C handed out. A C library that fits:
//
//	#include <dlpack/dlpack.h>
//
//	// Takes the tensor over: whatever happens, it deletes it.
//	double sum(DLManagedTensorVersioned *m)
//	{
//		const DLTensor *t = &m->dl_tensor;
//		double total = 0;
//		if (m->version.major == 1 && t->device.device_type == kDLCPU && t->ndim == 1 &&
//		    t->dtype.code == kDLFloat && t->dtype.bits == 32 && t->dtype.lanes == 1)
//			for (int64_t i = 0; i < t->shape[0]; i++)
//				total += ((float *)((char *)t->data + t->byte_offset))[i * t->strides[0]];
//		if (m->deleter)
//			m->deleter(m);
//		return total;
//	}
//
//	// Gives a tensor away; the taker calls its deleter.
//	DLManagedTensorVersioned *ramp(int64_t n);
//
// and the Go side of it:
//
//	view := dlpack.View{Data: memory, Device: dlpack.CPU, DataType: dlpack.Float32, Shape: []int64{3}}
//	t, err := dlpack.Export(&view, 0, true, owner)
//	...
//	p, _ := t.Detach()
//	total := C.sum((*C.DLManagedTensorVersioned)(p)) // C owns p now
//
//	t, err = dlpack.Import(unsafe.Pointer(C.ramp(10)), true)
//	...
//	defer t.Release()
//	values, err := dlpack.Slice[float32](t) // C's memory, no copy
//
// The layout of the structs is in the constants of this package (TensorSize,
// VersionedFlagsOffset, ...), and in C in usmb_dlpack.h, which other cgo
// packages may include and whose functions they may call; they import this
// package so that the functions are linked.
//
// # Ownership
//
// A [Tensor] is owned: exactly one of Release, Detach, or a function that takes
// it over ends it. It is a small value that may be copied; all copies end
// together, and using one later panics. Export takes over one reference of the
// owner on success and nothing on error; Import takes over the struct on
// success and nothing on error, so that after a failed exchange exactly one
// party, the one that had it before, still has it to delete. A deleter runs
// once, whichever way a tensor ends; one that is NULL is left alone. What
// [Tensor.Shape], [Slice] and the like return belongs to the tensor and must
// not be used after its end.
//
// An owner is a C function and its context. Memory that Go owns goes out through
// package usmarray, which has such owners: WrapSlice shows a Go slice, New and the
// like make memory for any use.
//
// What a producer's struct says is read once, when it is taken over, and what it
// writes there later is not believed. Its elements are its own to write.
//
// A tensor of another major version fails with [ErrVersion]; the only thing to
// do with it is [Delete].
//
// # Threads
//
// All functions may be called from any goroutine. A deleter of ours runs on
// whatever thread the consumer likes: it calls the owner's C function, takes no
// lock, and never enters Go; in a forked child it deletes the child's copy, and
// the parent hears nothing of it. This package has no goroutines.
//
// # What goes out and what comes in
//
// Out: the version is 1.3; strides are always written, 0-d tensors have neither
// shape nor strides; data is the first element's address and byte_offset 0, but
// for kDLOneAPI with negative strides data is the lowest address and
// byte_offset leads to the first element; tensors of size 0 have NULL data, but
// for kDLOneAPI they keep the USM pointer they need; read-only memory does not
// go out as a legacy tensor, which could not say so, nor do padded sub-byte
// elements.
//
// In: NULL strides (older producers), NULL deleters, byte offsets, size 0, up
// to 64 dimensions, packed and padded sub-byte elements and newer minor
// versions are understood. Refused: lanes other than 1, bools that are not 8
// bits, opaque handles, a first element or byte offset that is not at a multiple
// of the item size (of whole-byte types with elements), sizes and spans whose
// number of bits does not fit 63 bits, spans that wrap around the address
// space.
//
// # Builds
//
// Types, names, sizes, versions and flags are plain Go and work everywhere.
// Tensors need linux and cgo; elsewhere Export, Import and Check
// return errors.ErrUnsupported ([Supported] tells).
package dlpack
