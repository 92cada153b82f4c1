package dlpack

import (
	"fmt"
	"unsafe"
)

// Slice returns the tensor's memory as a Go slice, without a copy, in C order. It requires memory that the
// host can read at its address by the device type ([Device.HostReadable]), C-contiguous elements of
// exactly T, and memory that is not read-only; for read-only memory use [ReadOnlySlice]. Elements without a
// Go type, such as those of float8, are in [Bytes]; [FloatFormat] decodes them.
//
// The slice is valid until the tensor is released, and does not keep it alive. A bool slice relies on the
// producer storing only 0 and 1, as the standard requires.
func Slice[T Element](t Tensor) ([]T, error) {
	if t.Flags()&ReadOnly != 0 {
		return nil, opErr("Slice", ErrReadOnly, "the producer's memory must not be written: read it with ReadOnlySlice, or copy")
	}
	return sliceOf[T]("Slice", t)
}

// ReadOnlySlice is [Slice] for reading only: the caller must not write to the slice if the tensor is
// read-only, because a write may crash the process.
func ReadOnlySlice[T Element](t Tensor) ([]T, error) { return sliceOf[T]("ReadOnlySlice", t) }

func sliceOf[T Element](op string, t Tensor) ([]T, error) {
	if err := hostElements(op, t, DataTypeOf[T]()); err != nil {
		return nil, err
	}
	span := t.Span()
	if !span.isC() {
		return nil, opErr(op, ErrLayout, "shape %v with strides %v is not C-contiguous: copy it, or use usmarray.FromDLPack", t.Shape(), t.Strides())
	}
	return unsafe.Slice((*T)(firstElement(span)), span.Count), nil
}

// Bytes returns the memory of a contiguous tensor (C or Fortran order) that the host can read, with packed
// elements as stored. It is valid until the tensor is released, and must not be written if the tensor is
// read-only.
func Bytes(t Tensor) ([]byte, error) {
	if err := hostReadable("Bytes", t); err != nil {
		return nil, err
	}
	span := t.Span()
	if !span.isC() && !span.isF() {
		return nil, opErr("Bytes", ErrLayout, "shape %v with strides %v has gaps or overlaps: copy it first", t.Shape(), t.Strides())
	}
	return unsafe.Slice((*byte)(firstElement(span)), span.Hi-span.Lo), nil
}

// firstElement returns nil for an empty tensor: the garbage collector must not see an arbitrary address.
func firstElement(s Span) unsafe.Pointer {
	if s.Count == 0 {
		return nil
	}
	return s.First
}

func hostReadable(op string, t Tensor) error {
	if d := t.Device(); !d.HostReadable() {
		return opErr(op, ErrDevice, "memory on %s is not known to be readable by the host: copy it to kDLCPU first", d)
	}
	return nil
}

func hostElements(op string, t Tensor, want DataType) error {
	if err := hostReadable(op, t); err != nil {
		return err
	}
	if got := t.DataType(); got != want {
		hint := "read the encodings with Bytes"
		if g := goTypes[got]; g != nil {
			hint = fmt.Sprintf("ask for %s", g)
		}
		return opErr(op, ErrDataType, "the elements are %s, not %s: %s", got, want, hint)
	}
	return nil
}
