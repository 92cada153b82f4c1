//go:build cgo && linux

package pymodule

/*
#include <stdlib.h>
#include "usmb_pymod.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/owner"
	"github.com/usmbridge/usmbridge/usmarray"
)

// ToPython returns a usmbridge.Array on the memory of a Go array, which it keeps
// alive on its own: the Go array may be released. Any goroutine; takes the GIL.
func ToPython(a *usmarray.Array) (*python.Object, error) {
	shape, strides := a.Shape(), a.Strides()
	dt := a.DataType()
	if len(shape) > C.USMB_DL_MAX_NDIM {
		return nil, fmt.Errorf("pymodule: ToPython: %d dimensions, DLPack and Python know %d at most: %w", len(shape), C.USMB_DL_MAX_NDIM, usmarray.ErrLayout)
	}
	layout := a.Layout()
	if layout.Offset()*dt.StorageBits(a.Padded())%8 != 0 {
		return nil, fmt.Errorf("pymodule: ToPython: the packed %v elements begin inside a byte: %w", dt, usmarray.ErrLayout)
	}
	x, err := newExchange("ToPython")
	if err != nil {
		return nil, err
	}
	defer x.close()
	x.g.cell = (*C.usmb_cell)(a.Buffer().Cell().Pointer())
	x.g.first = C.uint64_t(uintptr(a.Pointer()))
	x.g.ndim = C.int32_t(len(shape))
	x.g.dtype = C.usmb_dl_dtype{code: C.uint8_t(dt.Code), bits: C.uint8_t(dt.Bits), lanes: C.uint16_t(dt.Lanes)}
	for i, n := range shape {
		x.g.shape[i], x.g.strides[i] = C.int64_t(n), C.int64_t(strides[i])
	}
	if a.ReadOnly() {
		x.g.flags |= C.USMB_ARR_READONLY
	}
	if a.Padded() {
		x.g.flags |= C.USMB_ARR_PADDED
	}
	return x.module.Method("_wrap", x.capsule)
}

// FromPython returns a Go array on the memory of a Python object: one with
// __sycl_usm_array_interface__, __dlpack__ or a buffer, without a copy. The array
// keeps the object (or what it exported) alive until its Release, which may be
// called in any goroutine and does not take the GIL. Any goroutine; takes the GIL.
//
// Errors: what Python raised, as *python.Error.
func FromPython(o *python.Object) (*usmarray.Array, error) {
	x, err := newExchange("FromPython")
	if err != nil {
		return nil, err
	}
	defer x.close()
	none, err := x.module.Method("_take", o, x.capsule)
	if err != nil {
		return nil, err
	}
	none.Release()
	cell := owner.CellOf(unsafe.Pointer(x.g.cell))
	a, err := arrayOf(x.g, cell)
	if err != nil {
		cell.Release()
	}
	return a, err
}

// exchange is one call of the module with a description in C memory.
type exchange struct {
	g       *C.usmb_go_array
	module  *python.Object
	capsule *python.Object
}

func newExchange(op string) (x *exchange, err error) {
	py := python.Current()
	if py == nil {
		return nil, fmt.Errorf("pymodule: %s: %w", op, python.ErrNotStarted)
	}
	g := (*C.usmb_go_array)(C.calloc(1, C.sizeof_usmb_go_array))
	if g == nil {
		return nil, fmt.Errorf("pymodule: %s: %w", op, memmgr.ErrOutOfMemory)
	}
	x = &exchange{g: g}
	if x.module, err = py.Import("usmbridge"); err == nil {
		x.capsule, err = py.Capsule(unsafe.Pointer(g), "usmbridge.go_array")
	}
	if err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

// close gives everything back. The capsule was never shown to anybody else.
func (x *exchange) close() {
	if x.capsule != nil {
		x.capsule.Release()
	}
	if x.module != nil {
		x.module.Release()
	}
	C.free(unsafe.Pointer(x.g))
}

// arrayOf describes the memory to usmarray. On success the array has taken the
// reference over.
func arrayOf(g *C.usmb_go_array, cell *owner.Cell) (*usmarray.Array, error) {
	layout, err := layoutOf(cell, g.first, g.itembits, ints(&g.shape[0], g.ndim), ints(&g.strides[0], g.ndim))
	if err != nil {
		return nil, err
	}
	return usmarray.FromBuffer(memmgr.FromCell(cell), typeOf(g.dtype), layout, optionsOf(g.flags)...)
}

// borrowed is an Array of Python's, for the time of a call.
func borrowed(a *C.usmb_array) (*usmarray.Array, error) {
	dims := ints((*C.int64_t)(unsafe.Add(unsafe.Pointer(a), C.sizeof_usmb_array)), 2*a.ndim) // its last member
	cell := owner.CellOf(unsafe.Pointer(a.cell))
	layout, err := layoutOf(cell, C.uint64_t(uintptr(unsafe.Pointer(a.first))), a.itembits, dims[:a.ndim], dims[a.ndim:])
	if err != nil {
		return nil, err
	}
	return usmarray.WrapBuffer(memmgr.FromCell(cell), typeOf(a.dtype), layout, optionsOf(a.flags)...)
}

// layoutOf counts in elements from the start of the memory.
func layoutOf(cell *owner.Cell, first C.uint64_t, itembits C.uint32_t, shape, strides []int) (usmarray.Layout, error) {
	bits := int(uintptr(first)-cell.Address) * 8
	if bits%int(itembits) != 0 {
		return usmarray.Layout{}, fmt.Errorf("pymodule: the first element is not a whole number of elements from the start of its memory: %w", usmarray.ErrLayout)
	}
	return usmarray.NewLayout(shape, strides, bits/int(itembits))
}

func typeOf(t C.usmb_dl_dtype) dlpack.DataType {
	return dlpack.DataType{Code: dlpack.Code(t.code), Bits: uint8(t.bits), Lanes: uint16(t.lanes)}
}

func optionsOf(flags C.uint32_t) (opts []usmarray.BufferOption) {
	if flags&C.USMB_ARR_READONLY != 0 {
		opts = append(opts, usmarray.BufferReadOnly())
	}
	if flags&C.USMB_ARR_PADDED != 0 {
		opts = append(opts, usmarray.BufferPadded())
	}
	return opts
}
