package usmarray

// InterfaceVersion is the version of __sycl_usm_array_interface__ that this
// package writes and reads.
const InterfaceVersion = 1

// USMInterface is a __sycl_usm_array_interface__ dictionary (SUAI) as a Go
// value. It describes memory and owns none: whoever hands it out keeps the
// memory alive while it is used. Field by field it follows the specification
// of dpctl; strides and offset count elements, not bytes.
type USMInterface struct {
	// Shape is the length of each axis; empty for a scalar.
	Shape []int
	// TypeStr is the element type: a byte-order sign of this machine ("<", "="
	// or "|"), a kind (b, i, u, f, c) and a size in bytes.
	TypeStr string
	// TypeDescr describes the fields of structured types, which are refused;
	// one nameless field of the same type is allowed. Nil when absent.
	TypeDescr []TypeField
	// Data is the address that Offset counts from, an integer because nobody
	// has checked yet what it points to. Not zero, even for size 0.
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
	// SyclObj says which context the memory belongs to.
	SyclObj SyclObj
	// Allocation is the memory that Data points into, where it is known; it
	// catches a span that leaves its allocation for a neighbouring one, which
	// the SYCL runtime cannot tell.
	Allocation Extent
}

// TypeField is one item of typedescr: a name and a type string, and a shape for
// fields that are arrays.
type TypeField struct {
	Name  string
	Type  string
	Shape []int
}

// Extent is a range of memory; the zero value is an unknown one.
type Extent struct {
	Base uintptr
	Size uintptr // in bytes
}
