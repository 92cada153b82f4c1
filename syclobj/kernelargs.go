package syclobj

import (
	"fmt"
	"unsafe"
)

// KernelArg is one argument of a launch, as PointerArg, ScalarArg, LocalArg or BytesArg returns it. It is
// a value that borrows its memory. The zero value is invalid.
type KernelArg struct {
	kind   argKind
	float  bool // a floating-point scalar
	signed bool // a signed scalar
	value  uint64
	bytes  []byte
}

// argKind is USMB_KERNEL_ARG_* plus one, so that the zero value is no argument.
type argKind uint8

const (
	argNone argKind = iota
	argScalar1
	argScalar2
	argScalar4
	argScalar8
	argPointer
	argLocal
	argBytes
)

// KernelScalar is the set of Go types that correspond to a scalar type of OpenCL C: char to ulong, float
// and double. int and uint are excluded, because OpenCL C's int has 32 bits and Go's may have 64. Pass a
// half as the uint16 of its bits. bool cannot be a kernel argument in OpenCL C; use a char or an int.
type KernelScalar interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// ScalarArg passes a number by value.
func ScalarArg[T KernelScalar](v T) KernelArg {
	var zero T
	one, two := zero+1, zero+2
	a := KernelArg{float: one/two != 0, signed: zero-one < zero}
	p := unsafe.Pointer(&v)
	switch unsafe.Sizeof(v) {
	case 1:
		a.kind, a.value = argScalar1, uint64(*(*uint8)(p))
	case 2:
		a.kind, a.value = argScalar2, uint64(*(*uint16)(p))
	case 4:
		a.kind, a.value = argScalar4, uint64(*(*uint32)(p))
	default:
		a.kind, a.value = argScalar8, *(*uint64)(p)
	}
	return a
}

// PointerArg passes the address of USM as a pointer to global or constant memory; nil is OpenCL C's null.
// The memory must be USM of the queue's context and stay allocated until the launch completes. Neither is
// checked; package usmarray/kernel does both for arrays.
func PointerArg(p unsafe.Pointer) KernelArg {
	return KernelArg{kind: argPointer, value: uint64(uintptr(p))}
}

// LocalArg allocates this many bytes of memory for each work-group, passed as a pointer to local memory.
// The launch must set the size of its work-groups.
func LocalArg(bytes uintptr) KernelArg { return KernelArg{kind: argLocal, value: uint64(bytes)} }

// BytesArg passes the bytes of a value other than a scalar in the layout of OpenCL C: a vector (float4), a
// structure. They are read during the submission. It requires dpctl 0.20.
func BytesArg(b []byte) KernelArg { return KernelArg{kind: argBytes, bytes: b} }

// size returns the number of bytes of a value, 0 for other arguments.
func (a *KernelArg) size() int {
	switch a.kind {
	case argScalar1, argScalar2, argScalar4, argScalar8:
		return 1 << (a.kind - argScalar1)
	case argBytes:
		return len(a.bytes)
	}
	return 0
}

func (a *KernelArg) isScalar() bool { return a.kind >= argScalar1 && a.kind <= argScalar8 }

// String describes the argument: "float64", "a pointer", "64 bytes of local memory".
func (a KernelArg) String() string {
	switch {
	case a.kind == argPointer:
		return "a pointer"
	case a.kind == argLocal:
		return fmt.Sprintf("%d bytes of local memory", a.value)
	case a.kind == argBytes:
		return fmt.Sprintf("a value of %d bytes", len(a.bytes))
	case !a.isScalar():
		return "the zero KernelArg"
	case a.float:
		return fmt.Sprintf("float%d", 8*a.size())
	case a.signed:
		return fmt.Sprintf("int%d", 8*a.size())
	}
	return fmt.Sprintf("uint%d", 8*a.size())
}
