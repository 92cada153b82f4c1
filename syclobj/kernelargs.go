package syclobj

import (
	"fmt"
	"unsafe"
)

// KernelArg is one argument of a launch: what PointerArg, ScalarArg, LocalArg or
// BytesArg gives. The zero value is none of them and is refused.
type KernelArg struct {
	kind   argKind
	float  bool // of a scalar
	signed bool // likewise
	value  uint64
	bytes  []byte
}

// argKind is USMB_KERNEL_ARG_* and one, so that the zero value is no argument.
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

// KernelScalar is the Go types that are a scalar type of OpenCL C: char to ulong, float
// and double. int and uint are not among them, because OpenCL C's int has 32 bits and
// Go's may have 64. A half goes as the uint16 of its bits; bool is no kernel argument in
// OpenCL C, which takes a char or an int instead.
type KernelScalar interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// ScalarArg is a number that the kernel takes by value.
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

// PointerArg is the address of USM that the kernel takes as a pointer to global or
// constant memory; nil is OpenCL C's null. The memory must be USM of the queue's context
// and stay until the launch is complete, neither of which is checked: package
// usmarray/kernel does both for arrays.
func PointerArg(p unsafe.Pointer) KernelArg {
	return KernelArg{kind: argPointer, value: uint64(uintptr(p))}
}

// LocalArg is so many bytes of memory that each work-group has for itself, which the
// kernel takes as a pointer to local memory. The launch must name the size of its
// work-groups.
func LocalArg(bytes uintptr) KernelArg { return KernelArg{kind: argLocal, value: uint64(bytes)} }

// BytesArg is the bytes of a value that no scalar is: a vector (float4), a structure in
// the layout of OpenCL C. They are read while the launch is submitted. It needs dpctl 0.20.
func BytesArg(b []byte) KernelArg { return KernelArg{kind: argBytes, bytes: b} }

// size is the bytes of a value; 0 for what is none.
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

// String says what the argument is: "float64", "a pointer", "64 bytes of local memory".
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
