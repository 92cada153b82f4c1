package kernel

import (
	"fmt"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Arg is one argument of a launch. The zero value is none and is refused.
type Arg struct {
	value   syclobj.KernelArg
	array   *usmarray.Array
	isArray bool
	writes  bool
	strided bool
}

// Read is an array that the kernel only reads, of which the parameter is a pointer to const
// or constant memory: read-only arrays are allowed. The array is the caller's and is held
// until the launch is complete.
func Read(a *usmarray.Array) Arg { return Arg{array: a, isArray: true} }

// ReadWrite is an array that the kernel may write to; read-only arrays are refused.
func ReadWrite(a *usmarray.Array) Arg { return Arg{array: a, isArray: true, writes: true} }

// Strided lets an array's elements lie as they may: the kernel gets the address of the
// element (0, …, 0), and must be told the strides (in elements) by other arguments. It
// changes nothing for other arguments.
func (a Arg) Strided() Arg {
	a.strided = true
	return a
}

// Scalar is a number that the kernel takes by value, of exactly the parameter's size: int32
// for int, int64 for long, uint16 with the bits of a half.
func Scalar[T syclobj.KernelScalar](v T) Arg { return Arg{value: syclobj.ScalarArg(v)} }

// Local is memory that each work-group has for itself, with room for n values of type T. The
// range must have work-groups (Range.By). A negative n is refused by the launch.
func Local[T syclobj.KernelScalar](n int) Arg {
	var zero T
	size := uintptr(sizeof(zero))
	if n < 0 || uintptr(n) > ^uintptr(0)>>1/size {
		n = 0 // which is refused
	}
	return Arg{value: syclobj.LocalArg(uintptr(n) * size)}
}

// Bytes is the bytes of a value that no scalar is, as OpenCL C lays it out: a vector
// (float4), a structure. They are read while the launch is submitted. It needs dpctl 0.20.
func Bytes(b []byte) Arg { return Arg{value: syclobj.BytesArg(b)} }

// String says what the argument is.
func (a Arg) String() string {
	switch {
	case !a.isArray:
		return a.value.String()
	case a.array == nil:
		return "a nil array"
	}
	return fmt.Sprintf("a %v array of shape %v", a.array.DataType(), a.array.Shape())
}

// pointsTo is why a parameter cannot take an array's elements, nil when it can as far as is
// known.
func pointsTo(p *syclobj.KernelParam, a *Arg, readOnly bool) error {
	if p.Address != "global" && p.Address != "constant" {
		return nil // not told, or for syclobj to refuse
	}
	if readOnly && !p.Const && p.Address != "constant" {
		return fmt.Errorf("%w: the kernel takes %s, through which it may write: declare it const, or give a Copy", usmarray.ErrReadOnly, p)
	}
	bits, float, _, known := p.Element()
	wantBits, wantFloat, comparable := openCLOf(a.array.DataType())
	if known && comparable && (bits != wantBits || float != wantFloat) {
		return fmt.Errorf("%w: the kernel takes %s, the elements are %v: convert them with AsType, or change the kernel", usmarray.ErrType, p, a.array.DataType())
	}
	return nil
}

// openCLOf is the bits of the scalars that elements are made of in OpenCL C, and whether
// they are floating-point numbers; false for elements that OpenCL C has no type for, which a
// kernel takes as whatever it likes.
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
