//go:build cgo && linux

package pymodule

/*
#include "array.h"
#include "handover.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// ToPython returns a usmbridge.Array on the memory of a Go array, without a copy. The Array
// keeps the memory alive, so the Go array may be released. ToPython may be called from any
// goroutine and acquires the GIL.
//
// The error is usmarray.ErrLayout for more than 64 dimensions or for packed elements that
// begin inside a byte, python.ErrNotStarted, python.ErrGone or python.ErrForked without
// Python, or a *python.Error: an ImportError in an interpreter without the module (see
// Register).
func ToPython(a *usmarray.Array) (*python.Object, error) {
	d, err := describe(a)
	if err != nil {
		return nil, err
	}
	r := C.usmb_handover_to_python((*C.usmb_cell)(cells.Of(a.Buffer()).Pointer()), C.uintptr_t(d.First),
		*(*C.usmb_dl_dtype)(unsafe.Pointer(&d.DataType)), C.uint32_t(d.Flags), C.int32_t(len(d.Shape)), cInts(d.Shape), cInts(d.Strides))
	o, err := python.FromResult(unsafe.Pointer(&r))
	if err != nil {
		a.Buffer().Release()
	}
	return o, err
}

func init() {
	calling.Describe = func(a any) (calling.Array, error) { return describe(a.(*usmarray.Array)) }
}

// describe returns the description of an array for Python, with a new reference to its memory.
func describe(a *usmarray.Array) (d calling.Array, err error) {
	shape, strides, dt := a.Shape(), a.Strides(), a.DataType()
	if len(shape) > C.USMB_DL_MAX_NDIM {
		return d, fmt.Errorf("pymodule: cannot pass an array of %d dimensions to Python (at most %d): %w", len(shape), C.USMB_DL_MAX_NDIM, usmarray.ErrLayout)
	}
	if bits := dt.StorageBits(a.Padded()); bits < 8 && a.Layout().Offset()*bits%8 != 0 {
		return d, fmt.Errorf("pymodule: cannot pass packed %v elements that begin inside a byte to Python: %w", dt, usmarray.ErrLayout)
	}
	var flags C.uint32_t
	if a.ReadOnly() {
		flags |= C.USMB_ARR_READONLY
	}
	if a.Padded() {
		flags |= C.USMB_ARR_PADDED
	}
	buf := a.Buffer()
	flags |= sharedFlags(buf)
	t := cType(dt)
	buf.Retain()
	return calling.Array{
		Cell: uintptr(cells.Of(buf).Pointer()), First: uintptr(a.Pointer()),
		DataType: *(*uint32)(unsafe.Pointer(&t)), Flags: uint32(flags), Shape: shape, Strides: strides,
	}, nil
}

// sharedFlags returns the flags of memory that several processes map. Memory received from
// another process is unmapped in forked children, where Python must not access it.
func sharedFlags(buf memmgr.Buffer) (flags C.uint32_t) {
	audience, ok := share.AudienceOf(buf)
	if !ok {
		return 0
	}
	flags = C.USMB_ARR_INTERPROCESS
	if audience == segment.PeersRead {
		flags |= C.USMB_ARR_PEERS_READ
	}
	if _, _, own := segment.Find(buf.Address(), buf.Size()); !own {
		flags |= C.USMB_ARR_RECEIVED
	}
	return flags
}

// FromPython returns a Go array on the memory of a Python object with
// __sycl_usm_array_interface__, __dlpack__ or the buffer protocol, without a copy. The array
// keeps the object, or the object that it exported, alive until its Release, which may be
// called from any goroutine and does not acquire the GIL. FromPython may be called from any
// goroutine and acquires the GIL.
//
// The error is python.ErrNotStarted, python.ErrGone or python.ErrForked without Python, or a
// *python.Error.
func FromPython(o *python.Object) (*usmarray.Array, error) {
	h := handovers.Get().(*C.usmb_handover)
	defer handovers.Put(h)
	r := C.usmb_handover_from_python(o.Pointer(), h)
	runtime.KeepAlive(o)
	if _, err := python.FromResult(unsafe.Pointer(&r)); err != nil {
		return nil, err
	}
	cell := owner.CellOf(unsafe.Pointer(h.cell))
	layout, err := layoutOf(cell, h.first, h.itembits, ints(&h.shape[0], h.ndim), ints(&h.strides[0], h.ndim))
	if err != nil {
		cell.Release()
		return nil, err
	}
	a, err := usmarray.FromBuffer(cells.Buffer(cell), typeOf(h.dtype), layout, optionsOf(h.flags)...)
	if err != nil {
		cell.Release()
	}
	return a, err
}

// handovers pools the structs into which C writes, because they are large.
var handovers = sync.Pool{New: func() any { return new(C.usmb_handover) }}

// cInts returns the elements of v as a C array, without a copy.
func cInts(v []int) *C.int64_t { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(v))) }

// borrowed returns a Go array for a Python Array. It is valid for the duration of a call.
func borrowed(a *C.usmb_array) (*usmarray.Array, error) {
	dims := ints((*C.int64_t)(unsafe.Add(unsafe.Pointer(a), C.sizeof_usmb_array)), 2*a.ndim) // the flexible last member
	cell := owner.CellOf(unsafe.Pointer(a.cell))
	layout, err := layoutOf(cell, C.uintptr_t(uintptr(unsafe.Pointer(a.first))), a.itembits, dims[:a.ndim], dims[a.ndim:])
	if err != nil {
		return nil, err
	}
	return usmarray.WrapBuffer(cells.Buffer(cell), typeOf(a.dtype), layout, optionsOf(a.flags)...)
}

// layoutOf returns a layout whose offset is in elements from the start of the memory.
func layoutOf(cell *owner.Cell, first C.uintptr_t, itembits C.uint32_t, shape, strides []int) (usmarray.Layout, error) {
	bits := int(uintptr(first)-cell.Address) * 8
	if bits%int(itembits) != 0 {
		return usmarray.Layout{}, fmt.Errorf("pymodule: the offset of the first element in its memory is not a multiple of the element size: %w", usmarray.ErrLayout)
	}
	return usmarray.NewLayout(shape, strides, bits/int(itembits))
}

func typeOf(t C.usmb_dl_dtype) dlpack.DataType {
	return dlpack.DataType{Code: dlpack.Code(t.code), Bits: uint8(t.bits), Lanes: uint16(t.lanes)}
}

func cType(t dlpack.DataType) C.usmb_dl_dtype {
	return C.usmb_dl_dtype{code: C.uint8_t(t.Code), bits: C.uint8_t(t.Bits), lanes: C.uint16_t(t.Lanes)}
}

func optionsOf(flags C.uint32_t) (opts []usmarray.Option) {
	if flags&C.USMB_ARR_READONLY != 0 {
		opts = append(opts, usmarray.ReadOnly())
	}
	if flags&C.USMB_ARR_PADDED != 0 {
		opts = append(opts, usmarray.Padded())
	}
	return opts
}
