package dlpack

import (
	"fmt"
	"iter"
	"unsafe"
)

// Slice returns the tensor's memory as a Go slice, without a copy, in C order. It requires memory that the
// host can read at its address by the device type ([Device.HostReadable]), C-contiguous elements of
// exactly T, and memory that is not read-only; for read-only memory use [ReadOnlySlice]. Sub-byte elements
// must be padded.
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
	if !span.CContiguous() {
		return nil, opErr(op, ErrLayout, "shape %v with strides %v is not C-contiguous: use Elements, or copy", t.Shape(), t.Strides())
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
	if !span.CContiguous() && !span.FContiguous() {
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
	got := t.DataType()
	switch {
	case got != want:
		detail := fmt.Sprintf("the elements are %s, not %s", got, want)
		if g := got.goType(); g != nil {
			detail += fmt.Sprintf(": ask for %s", g)
		}
		return opErr(op, ErrDataType, "%s", detail)
	case got.IsSubByte() && t.Flags()&SubBytePadded == 0:
		return opErr(op, ErrLayout, "%s elements are packed, %d bits each: unpack them with Bytes and UnpackBits", got, got.Bits)
	}
	return nil
}

// Strided reads and writes the elements of a tensor with any strides in place. It borrows the tensor's
// memory and is valid until the tensor is released. Element access is not synchronized. The zero value has
// no elements.
type Strided[T Element] struct {
	first    unsafe.Pointer
	shape    []int64
	strides  []int64
	count    int64
	readOnly bool
}

// Elements returns access to the elements of a tensor of any layout. The requirements are those of
// [Slice], except that the elements need not be contiguous, and that read-only memory is allowed;
// [Strided.Set] refuses it.
func Elements[T Element](t Tensor) (Strided[T], error) {
	if err := hostElements("Elements", t, DataTypeOf[T]()); err != nil {
		return Strided[T]{}, err
	}
	span := t.Span()
	return Strided[T]{firstElement(span), t.Shape(), t.Strides(), span.Count, t.Flags()&ReadOnly != 0}, nil
}

// At returns the element at an index with one number for each dimension. It panics with an [*OpError] that
// matches [ErrIndex] if the index is outside the shape.
func (s Strided[T]) At(index ...int64) T { return *s.at(index) }

// Set writes the element at an index. It panics outside the shape, and with [ErrReadOnly] on read-only
// memory.
func (s Strided[T]) Set(value T, index ...int64) {
	if s.readOnly {
		panic(opErr("Strided.Set", ErrReadOnly, "the producer's memory must not be written: copy it"))
	}
	*s.at(index) = value
}

func (s Strided[T]) at(index []int64) *T {
	if len(index) != len(s.shape) {
		panic(opErr("Strided", ErrIndex, "%d indices for %d dimensions: give one for each dimension", len(index), len(s.shape)))
	}
	offset := int64(0)
	for i, x := range index {
		if x < 0 || x >= s.shape[i] {
			panic(opErr("Strided", ErrIndex, "index %d in dimension %d of %d elements", x, i, s.shape[i]))
		}
		offset += x * s.strides[i]
	}
	if s.count == 0 { // the zero value has no dimensions either
		panic(opErr("Strided", ErrIndex, "there are no elements: use the Strided of a tensor from Elements"))
	}
	return s.address(offset)
}

func (s Strided[T]) address(offset int64) *T {
	var zero T
	return (*T)(unsafe.Add(s.first, offset*int64(unsafe.Sizeof(zero))))
}

// All iterates over the elements in C order.
func (s Strided[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		if s.count == 0 {
			return
		}
		var index [MaxNDim]int64
		offset := int64(0)
		for {
			if !yield(*s.address(offset)) {
				return
			}
			d := len(s.shape) - 1
			for ; d >= 0; d-- {
				index[d]++
				offset += s.strides[d]
				if index[d] < s.shape[d] {
					break
				}
				offset -= index[d] * s.strides[d]
				index[d] = 0
			}
			if d < 0 {
				return
			}
		}
	}
}
