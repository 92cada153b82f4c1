package cute

import (
	"slices"
	"unsafe"
)

// Rank returns the number of modes.
func (s *Spec) Rank() int { return int(s.rank) }

// Shape returns the extents in elements, including those of dynamic modes. The caller owns the slice.
func (s *Spec) Shape() []int64 { return slices.Clone(s.modes().extent) }

// Stride returns the strides in elements after all marks, including those of dynamic modes. The caller
// owns the slice.
func (s *Spec) Stride() []int64 { return slices.Clone(s.modes().stride) }

// DynamicShape returns 0 if a mode's extent is static, else the known divisor of the dynamic extent. It
// panics if there is no such mode.
func (s *Spec) DynamicShape(mode int) int64 { return s.modes().shapeDiv[mode] }

// DynamicStride returns 0 if a mode's stride is static, else the known divisor of the dynamic stride. It
// panics if there is no such mode.
func (s *Spec) DynamicStride(mode int) int64 { return s.modes().strideDiv[mode] }

// ElementType returns CuTe's element type.
func (s *Spec) ElementType() ElementType { return s.element }

// MemSpace returns the memory space.
func (s *Spec) MemSpace() MemSpace { return s.space }

// Span returns the number of elements from the lowest address to the highest, inclusive: CuTe's cosize. It
// is 0 for an empty tensor.
func (s *Spec) Span() int64 { return s.span }

// Offset returns the distance in elements from the first element to the element at an index with one value
// for each mode. Marks do not change it. It panics for an index of another rank; it does not check the
// range of the values.
func (s *Spec) Offset(index ...int64) int64 {
	m := s.modes()
	if len(index) != len(m.stride) {
		panic(fail(ErrMode, "Offset was given an index of %d values for %d modes", len(index), len(m.stride)))
	}
	var offset int64
	for i, at := range index {
		offset += at * m.stride[i]
	}
	return offset
}

// TensorString returns CuTe DSL's text of a tensor with this description at an address:
// "Tensor<0x000000000875f580@generic o (30,20):(20,1)>".
func (s *Spec) TensorString(data unsafe.Pointer) string {
	var buffer [256]byte
	dst := append(buffer[:0], "Tensor<0x"...)
	dst = appendHex16(dst, uintptr(data))
	dst = append(dst, '@')
	dst = append(dst, s.space.String()...)
	dst = append(dst, " o "...)
	dst = s.appendLayout(dst)
	return string(append(dst, '>'))
}
