package dlpack

import (
	"fmt"
	"iter"
	"unsafe"
)

// Slice is the tensor's memory as a Go slice, without a copy, in C order. It
// needs memory that the host reads at its address by its device type
// ([Device.HostReadable]), elements of exactly T that are C-contiguous, and
// memory that is not read-only ([ReadOnlySlice] takes that). Sub-byte elements
// must be padded.
//
// The slice is valid until the tensor is released, and does not keep it. A bool
// slice relies on the producer storing 0 and 1 only, as the standard has it.
func Slice[T Element](t Tensor) ([]T, error) {
	if t.Flags()&ReadOnly != 0 {
		return nil, &Error{Op: "slice", Err: ErrReadOnly,
			Detail: "the producer's memory must not be written: read it with ReadOnlySlice, or copy"}
	}
	return ReadOnlySlice[T](t)
}

// ReadOnlySlice is [Slice] for memory that is only read: the caller must not
// write through it when the tensor is read-only, which may end the process.
func ReadOnlySlice[T Element](t Tensor) ([]T, error) {
	if err := hostElements(t, DataTypeOf[T]()); err != nil {
		return nil, err
	}
	span := t.Span()
	if !span.CContiguous() {
		return nil, &Error{Op: "slice", Err: ErrLayout,
			Detail: fmt.Sprintf("shape %v with strides %v is not C-contiguous: use Elements, or copy", t.Shape(), t.Strides())}
	}
	return unsafe.Slice((*T)(firstElement(span)), span.Count), nil
}

// Bytes is the memory of a contiguous tensor (C or Fortran order) as the host
// reads it, packed elements as they lie. Valid until the tensor is released;
// not to be written when the tensor is read-only.
func Bytes(t Tensor) ([]byte, error) {
	if err := hostReadable(t); err != nil {
		return nil, err
	}
	span := t.Span()
	if !span.CContiguous() && !span.FContiguous() {
		return nil, &Error{Op: "bytes", Err: ErrLayout,
			Detail: fmt.Sprintf("shape %v with strides %v has gaps or overlaps: copy it first", t.Shape(), t.Strides())}
	}
	return unsafe.Slice((*byte)(firstElement(span)), span.Hi-span.Lo), nil
}

// firstElement is nil when there is none: what an empty tensor has for an address
// is nothing that the garbage collector should come upon.
func firstElement(s Span) unsafe.Pointer {
	if s.Count == 0 {
		return nil
	}
	return s.First
}

func hostReadable(t Tensor) error {
	if d := t.Device(); !d.HostReadable() {
		return &Error{Op: "slice", Err: ErrDevice,
			Detail: fmt.Sprintf("memory on %s is not known to be readable by the host: copy it to kDLCPU first", d)}
	}
	return nil
}

func hostElements(t Tensor, want DataType) error {
	if err := hostReadable(t); err != nil {
		return err
	}
	got := t.DataType()
	switch {
	case got != want:
		detail := fmt.Sprintf("the elements are %s, not %s", got, want)
		if g := got.goType(); g != nil {
			detail += fmt.Sprintf(": ask for %s", g)
		}
		return &Error{Op: "slice", Err: ErrDataType, Detail: detail}
	case got.IsSubByte() && t.Flags()&SubBytePadded == 0:
		return &Error{Op: "slice", Err: ErrLayout,
			Detail: fmt.Sprintf("%s elements are packed, %d bits each: unpack them with Bytes and UnpackBits", got, got.Bits)}
	}
	return nil
}

// Strided reads and writes the elements of a tensor of any strides in place. It
// is valid until the tensor is released. The zero value has no elements.
type Strided[T Element] struct {
	first    unsafe.Pointer
	shape    []int64
	strides  []int64
	count    int64
	readOnly bool
}

// Elements is access to the elements of a tensor of any layout, under the
// conditions of [Slice] but for contiguity and read-only memory, which
// [Strided.Set] refuses.
func Elements[T Element](t Tensor) (Strided[T], error) {
	if err := hostElements(t, DataTypeOf[T]()); err != nil {
		return Strided[T]{}, err
	}
	span := t.Span()
	return Strided[T]{firstElement(span), t.Shape(), t.Strides(), span.Count, t.Flags()&ReadOnly != 0}, nil
}

// At is the element at an index, one number a dimension; it panics with an
// [*Error] that is [ErrIndex] outside of the shape, as a slice does.
func (s Strided[T]) At(index ...int64) T { return *s.at(index) }

// Set writes the element at an index; it panics outside of the shape, and on
// read-only memory with [ErrReadOnly].
func (s Strided[T]) Set(value T, index ...int64) {
	if s.readOnly {
		panic(&Error{Op: "set", Err: ErrReadOnly, Detail: "the producer's memory must not be written: copy it"})
	}
	*s.at(index) = value
}

func (s Strided[T]) at(index []int64) *T {
	if len(index) != len(s.shape) {
		panic(&Error{Op: "element", Err: ErrIndex,
			Detail: fmt.Sprintf("%d indices for %d dimensions: give one a dimension", len(index), len(s.shape))})
	}
	offset := int64(0)
	for i, x := range index {
		if x < 0 || x >= s.shape[i] {
			panic(&Error{Op: "element", Err: ErrIndex,
				Detail: fmt.Sprintf("index %d in dimension %d of %d elements", x, i, s.shape[i])})
		}
		offset += x * s.strides[i]
	}
	if s.count == 0 { // the zero value, which has no dimensions either
		panic(&Error{Op: "element", Err: ErrIndex, Detail: "there are no elements: take them from a tensor with Elements"})
	}
	return s.address(offset)
}

func (s Strided[T]) address(offset int64) *T {
	var zero T
	return (*T)(unsafe.Add(s.first, offset*int64(unsafe.Sizeof(zero))))
}

// All goes through the elements in C order.
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
