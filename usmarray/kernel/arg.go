package kernel

import (
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Arg is one argument of a launch, a value that borrows its array. The zero value is invalid.
type Arg struct {
	value   syclobj.KernelArg
	array   *usmarray.Array
	isArray bool
	writes  bool
	strided bool
}

// Read passes an array that the kernel only reads; the parameter is a pointer to const or constant memory.
// Read-only arrays are allowed. The launch holds the array's memory until it completes.
func Read(a *usmarray.Array) Arg { return Arg{array: a, isArray: true} }

// ReadWrite passes an array that the kernel may write; read-only arrays are refused.
func ReadWrite(a *usmarray.Array) Arg { return Arg{array: a, isArray: true, writes: true} }

// Strided allows an array with any strides: the kernel gets the address of element (0, …, 0), and other
// arguments must pass the strides (in elements). It has no effect on other arguments.
func (a Arg) Strided() Arg {
	a.strided = true
	return a
}

// Scalar passes a number by value. Its size must be that of the parameter: int32 for int, int64 for long,
// uint16 with the bits of a half.
func Scalar[T syclobj.KernelScalar](v T) Arg { return Arg{value: syclobj.ScalarArg(v)} }

// Local allocates memory for n values of type T for each work-group. The range must have work-groups
// (Range.By). The launch refuses a negative n.
func Local[T syclobj.KernelScalar](n int) Arg {
	var zero T
	size := unsafe.Sizeof(zero)
	if n < 0 || uintptr(n) > ^uintptr(0)>>1/size {
		n = 0 // refused by the launch
	}
	return Arg{value: syclobj.LocalArg(uintptr(n) * size)}
}

// Bytes passes the bytes of a value other than a scalar in the layout of OpenCL C: a vector (float4), a
// structure. They are read during the submission. It requires dpctl 0.20.
func Bytes(b []byte) Arg { return Arg{value: syclobj.BytesArg(b)} }

// String describes the argument.
func (a Arg) String() string {
	switch {
	case !a.isArray:
		return a.value.String()
	case a.array == nil:
		return "a nil array"
	}
	return fmt.Sprintf("a %v array of shape %v", a.array.DataType(), a.array.Shape())
}

// pointsTo returns an error if a parameter cannot take an array's elements, as far as the parameter is
// described.
func pointsTo(p *syclobj.KernelParam, a *Arg, readOnly bool) error {
	if p.Address != "global" && p.Address != "constant" {
		return nil // undescribed, or checked by syclobj
	}
	if readOnly && !p.Const && p.Address != "constant" {
		return fmt.Errorf("%w: the kernel takes %s, through which it may write: declare it const, or pass a Copy", usmarray.ErrReadOnly, p)
	}
	bits, float, _, known := p.Element()
	wantBits, wantFloat, comparable := openCLOf(a.array.DataType())
	if known && comparable && (bits != wantBits || float != wantFloat) {
		return fmt.Errorf("%w: the kernel takes %s, the elements are %v: convert them with AsType, or change the kernel", usmarray.ErrType, p, a.array.DataType())
	}
	return nil
}

// openCLOf returns the width of the OpenCL C scalars that elements consist of, and whether they are
// floating-point numbers. comparable is false if OpenCL C has no corresponding type, so that the parameter
// cannot be checked.
func openCLOf(dt usmarray.DataType) (bits int, float, comparable bool) {
	if dt.Lanes != 1 {
		return 0, false, false
	}
	switch dt.Code {
	case dlpack.CodeInt, dlpack.CodeUInt:
		return int(dt.Bits), false, dt.Bits >= 8
	case dlpack.CodeFloat:
		return int(dt.Bits), true, true
	case dlpack.CodeComplex:
		return int(dt.Bits) / 2, true, true
	}
	return 0, false, false
}
