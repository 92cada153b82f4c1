// Package dlpack implements the DLPack 1.3 C ABI: it builds, checks, imports and deletes managed
// tensors, and describes their element types and devices. It imports no other package of this module
// and knows neither arrays nor SYCL nor Python, so that any Go library can exchange its memory with C
// code through an unsafe.Pointer.
//
//	view := dlpack.View{Data: memory, Device: dlpack.CPU, DataType: dlpack.Float32, Shape: []int64{3}}
//	t, err := dlpack.Export(&view, 0, true, owner)
//	p, _ := t.Detach()
//	total := C.sum((*C.DLManagedTensorVersioned)(p))         // C owns p now
//
//	t, err = dlpack.Import(unsafe.Pointer(C.ramp(10)), true) // Go owns C's tensor now
//	defer t.Release()
//	values, err := dlpack.Slice[float32](t)                  // C's memory, no copy
//
// [Export] builds a tensor from a [View] of memory and an [Owner] that keeps the memory alive;
// [Tensor.Detach] returns the pointer to pass to C. [Import] takes over a pointer that C returned. The C
// side of the examples of Export and Import is in dlpack/internal/cpeer/peer.c.
//
// The header usmb_dlpack.h declares the structs for other cgo packages of this module, which may include it
// and call its functions; they import this package so that the functions are linked.
//
// # Ownership
//
// A [Tensor] is owned. Exactly one call of Release, Detach or a function that takes it over ends it. It
// is a small value that may be copied; all copies end together, and use after the end panics. [Export]
// takes over one reference of the owner on success and nothing on error. [Import] takes over the struct
// on success and nothing on error. So after a failed exchange the former owner still has the tensor to
// delete. The deleter runs exactly once, however a tensor ends; a NULL deleter is not called. Slices
// that [Tensor.Shape], [Slice] and other functions return belong to the tensor and must not be used
// after its end.
//
// An [Owner] is a C function and its context. Package usmarray has owners for memory that Go manages:
// use usmarray.New and similar functions for new memory, and usmarray.FromPinnedSlice for the memory of
// a Go slice.
//
// The fields of a producer's struct are read once, at import, into a copy that is checked and used.
// Later changes of the struct have no effect. The elements are not copied; the producer may write them.
//
// A tensor of another major version fails with [ErrVersion]; its only valid use is [Delete].
//
// # Threads
//
// All functions may be called from any goroutine. A deleter of this package runs on the thread that
// calls it: it calls the owner's C function, takes no lock and never enters Go. In a forked child it
// deletes the child's copy only. The package starts no goroutines.
//
// # Errors
//
// Errors are [*OpError] and match one of the Err… variables with errors.Is. Misuse where no error is
// returned panics with one: the use of an ended tensor.
//
// # Builds
//
// Types, names, sizes, versions and flags are plain Go and work on all systems. Tensors need Linux and
// cgo; elsewhere Export, Import and Check return errors.ErrUnsupported, and [Supported] reports false.
package dlpack
