package cute

import (
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
)

// inlineRank is the number of modes that a Spec stores inline; more need a slice.
const inlineRank = 8

// Spec describes a tensor as a compiled kernel sees it: element type, memory space, alignment, and a
// layout with static and dynamic parts. It has no address and owns nothing; marks change it in place.
//
// A Spec is a value whose copies are independent. Several goroutines may read one Spec at a time; a mark
// needs exclusive access. Up to eight modes need no heap memory. The zero Spec has no element type and
// rank 0.
type Spec struct {
	align   int64
	span    int64 // elements from the lowest address to the highest, both included; 0 when empty
	element ElementType
	space   MemSpace
	width   StrideWidth
	leading LeadingRule
	rank    uint8
	ordered bool // order was set by an earlier MarkCompactShapeDynamic

	// The tables of the modes: small for up to inlineRank modes, else large. Copies of
	// the Spec share large, so it must be cloned before a write.
	small smallTable
	large []int64
}

// smallTable holds the fields of modes. A large table holds the same in one slice, with the order in its
// last words.
type smallTable struct {
	extent, stride, shapeDiv, strideDiv [inlineRank]int64
	order                               [inlineRank]uint8
}

// modes gives access to a Spec's table, with one entry for each mode.
type modes struct {
	extent []int64 // elements
	stride []int64 // elements
	// shapeDiv and strideDiv are 0 for static values; else the extent or
	// stride is dynamic and a multiple of the number.
	shapeDiv, strideDiv []int64
	order               []uint8 // from outermost to innermost, if Spec.ordered
}

// NewSpec describes a tensor with a fully static layout. Errors: ErrElementType; ErrOption, also for
// devices whose memory has no address; ErrLayout (rank above MaxRank, a wrong number of strides, a
// negative extent, a size or span that overflows int64); ErrAlignment (assumed_align is not a power of
// two, or the address is not a multiple of it).
//
// To describe a DLPack tensor, pass its fields and check its flags with [CheckFlags]. CuTe DSL's implicit
// conversion of a kernel's arguments marks the result with MarkLayoutDynamic(Deduce).
func NewSpec(v dlpack.View, o Options) (Spec, error) {
	var s Spec
	err := s.describe(&v, &o)
	return s, err
}

func (s *Spec) describe(v *dlpack.View, o *Options) error {
	if err := o.check(); err != nil {
		return err
	}
	element, err := elementTypeOf(v.DataType)
	if err != nil {
		return err
	}
	if v.Device.Type.IsHandle() {
		return fail(ErrOption, "a tensor on %s has a handle in place of an address, which CuTe does not support: export the memory for a device with addresses", v.Device)
	}
	if len(v.Shape) > MaxRank {
		return fail(ErrLayout, "rank %d is more than the %d modes a tensor may have", len(v.Shape), MaxRank)
	}
	if v.Strides != nil && len(v.Strides) != len(v.Shape) {
		return fail(ErrLayout, "%d strides were given for %d modes: give one stride for each mode, or none for C order", len(v.Strides), len(v.Shape))
	}
	s.align = o.AssumedAlign
	if s.align == 0 {
		s.align = element.naturalAlign()
	}
	if address := uintptr(v.Data) + uintptr(v.ByteOffset); address&uintptr(s.align-1) != 0 {
		return fail(ErrAlignment, "the address 0x%016x is not a multiple of the assumed alignment of %d bytes: ask for a smaller assumed_align, or use memory allocated with that alignment", address, s.align)
	}
	s.element, s.space, s.width, s.leading = element, o.spaceOf(v.Device), o.Strides, o.Leading
	s.rank = uint8(len(v.Shape))
	s.takeTable()
	m := s.modes()
	copy(m.extent, v.Shape)
	if err := fillStrides(m, v.Strides); err != nil {
		return err
	}
	if o.UnitStrides {
		unitStrides(m)
	}
	s.span, err = spanOf(m)
	return err
}

// modes returns the table as slices; they share memory with the Spec.
func (s *Spec) modes() modes {
	n := int(s.rank)
	if n > inlineRank {
		t := s.large
		order := unsafe.Slice((*uint8)(unsafe.Pointer(&t[4*n])), n)
		return modes{t[:n:n], t[n : 2*n : 2*n], t[2*n : 3*n : 3*n], t[3*n : 4*n : 4*n], order}
	}
	t := &s.small
	return modes{t.extent[:n], t.stride[:n], t.shapeDiv[:n], t.strideDiv[:n], t.order[:n]}
}

// takeTable prepares an empty table of the rank.
func (s *Spec) takeTable() {
	if rank := int(s.rank); rank > inlineRank {
		s.large = make([]int64, 4*rank+(rank+7)/8)
	}
}

// own gives the Spec its own table before a mark writes to it.
func (s *Spec) own() modes {
	s.large = slices.Clone(s.large)
	return s.modes()
}

// fillStrides copies the strides, or derives those of C order, where an extent of 0 counts as 1, as in the
// array libraries.
func fillStrides(m modes, strides []int64) error {
	for i, e := range m.extent {
		if e < 0 {
			return fail(ErrLayout, "the extent %d of mode %d is negative", e, i)
		}
	}
	if strides != nil {
		copy(m.stride, strides)
		return nil
	}
	product := int64(1)
	for i := len(m.extent) - 1; i >= 0; i-- {
		m.stride[i] = product
		next, ok := mul(product, max(m.extent[i], 1))
		if !ok {
			return fail(ErrLayout, "the number of elements overflows int64 at mode %d of extent %d", i, m.extent[i])
		}
		product = next
	}
	return nil
}

func unitStrides(m modes) {
	for i, e := range m.extent {
		if e == 1 {
			m.stride[i] = 1
		}
	}
}

// spanOf returns the number of elements from the lowest address to the highest, inclusive: CuTe's cosize
// if no stride is negative.
func spanOf(m modes) (int64, error) {
	size, lo, hi := int64(1), int64(0), int64(0)
	empty := false
	for i, e := range m.extent {
		if e <= 1 {
			empty = empty || e == 0
			continue
		}
		var ok bool
		if size, ok = mul(size, e); !ok {
			return 0, fail(ErrLayout, "the number of elements overflows int64 at mode %d of extent %d", i, e)
		}
		reach, ok := mulSigned(m.stride[i], e-1)
		if reach >= 0 {
			hi += reach
		} else {
			lo += reach
		}
		// The sum of two numbers of one sign overflows to the other sign.
		if !ok || hi < 0 || lo > 0 {
			return 0, fail(ErrLayout, "the span of the layout overflows int64 at mode %d of extent %d and stride %d", i, e, m.stride[i])
		}
	}
	if empty {
		return 0, nil
	}
	if width := uint64(hi) + uint64(-lo); width < math.MaxInt64 {
		return int64(width) + 1, nil
	}
	return 0, fail(ErrLayout, "the span of the layout overflows int64: its elements reach from %d to %d", lo, hi)
}

// CheckFlags refuses flags of a DLPack tensor that a View cannot express, with ErrElementType: padded
// sub-byte elements.
func CheckFlags(dt dlpack.DataType, flags dlpack.Flags) error {
	if flags&dlpack.SubBytePadded != 0 && dt.IsSubByte() {
		return fail(ErrElementType, "the %s elements are padded to a byte each (IS_SUBBYTE_TYPE_PADDED), but CuTe packs them: pack them, or view the memory as Uint8", dt)
	}
	return nil
}

// mul multiplies two non-negative numbers.
func mul(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return int64(lo), hi == 0 && lo <= math.MaxInt64
}

// mulSigned multiplies any a by a non-negative b.
func mulSigned(a, b int64) (int64, bool) {
	if a >= 0 {
		return mul(a, b)
	}
	if a == math.MinInt64 {
		return a * b, b <= 1
	}
	p, ok := mul(-a, b)
	return -p, ok
}
