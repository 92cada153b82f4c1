package cute

import (
	"slices"
	"unsafe"
)

// Rank returns the number of modes.
func (s *Spec) Rank() int { return int(s.rank) }

// Shape returns the extents in elements, those of dynamic modes too. The slice
// is the caller's.
func (s *Spec) Shape() []int64 { return slices.Clone(s.modes().extent) }

// Stride returns the strides in elements, those of dynamic modes too, as the
// marks left them. The slice is the caller's.
func (s *Spec) Stride() []int64 { return slices.Clone(s.modes().stride) }

// DynamicShape returns what is known of a mode's extent: 0 if it is static, else
// the number it is a multiple of. It panics if there is no such mode.
func (s *Spec) DynamicShape(mode int) int64 { return s.modes().shapeDiv[mode] }

// DynamicStride is DynamicShape for the mode's stride.
func (s *Spec) DynamicStride(mode int) int64 { return s.modes().strideDiv[mode] }

// ElementType returns the type of an element under CuTe's name.
func (s *Spec) ElementType() ElementType { return s.element }

// MemSpace returns the memory space.
func (s *Spec) MemSpace() MemSpace { return s.space }

// Span returns the number of elements from the lowest address to the highest,
// both included: CuTe's cosize. It is 0 for an empty tensor.
func (s *Spec) Span() int64 { return s.span }

// Offset returns the distance in elements from the first element to the one at
// the index, which has a value for each mode. No mark changes it. It panics for
// an index of another rank; values out of range are not caught.
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

// TensorString returns CuTe DSL's form of a tensor with this description at an
// address: "Tensor<0x000000000875f580@generic o (30,20):(20,1)>".
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
