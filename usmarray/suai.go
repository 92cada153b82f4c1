package usmarray

import "github.com/usmbridge/usmbridge/memmgr"

// InterfaceVersion is the version of __sycl_usm_array_interface__ that this
// package writes and reads.
const InterfaceVersion = 1

// USMInterface is a __sycl_usm_array_interface__ dictionary (SUAI) as a Go value. It describes memory and
// owns none: the producer keeps the memory alive while it is used. The fields follow dpctl's
// specification; strides and offset count elements, not bytes. Concurrent reads are safe.
type USMInterface struct {
	// Shape is the length of each axis; empty for a scalar.
	Shape []int
	// TypeStr is the element type: a byte-order sign of this machine ("<", "="
	// or "|"), a kind (b, i, u, f, c) and a size in bytes.
	TypeStr string
	// TypeDescr describes the fields of structured types, which are refused. A
	// single unnamed field of the same type is allowed. Nil means absent.
	TypeDescr []TypeField
	// Data is the address from which Offset counts: an integer, because it has
	// not been checked. It is not zero, even for size 0.
	Data uintptr
	// ReadOnly is the second item of data: true means that the memory must not be written, as the
	// specification says. dpctl.memory and oneDAL write true for writable memory; invert theirs.
	ReadOnly bool
	// Strides are in elements; nil (None, or absent) means C order.
	Strides []int
	// Offset is the index of element (0, …, 0), counted from Data in elements.
	Offset int
	// Version is 1.
	Version int
	// SyclObj names the context of the memory.
	SyclObj SyclObj
	// Allocation is the allocation that Data points into, if known. It
	// detects a span that extends from its allocation into a neighbouring one, which
	// the SYCL runtime cannot detect.
	Allocation Extent

	memory memmgr.Buffer // of the exported array, which may have been released since; see own
}

// TypeField is one item of typedescr: a name, a type string, and a shape for fields that are arrays. It is
// a value that owns nothing.
type TypeField struct {
	Name  string
	Type  string
	Shape []int
}

// Extent is a range of memory, a value that owns nothing. The zero value means unknown.
type Extent struct {
	Base uintptr
	Size uintptr // in bytes
}
