package cute

import (
	"encoding/binary"
	"strconv"
)

// Key identifies a compiled kernel: element type, memory space, alignment, rank, the static extents and
// strides, and, for the dynamic ones, their divisibility and (for strides) their width. It contains
// neither the address nor the values of dynamic extents and strides, nor a requested width if no stride is
// dynamic.
//
// A Key is a value that owns nothing. Keys are comparable with == and can be keys of maps of kernels or of
// converted tensors. Equal keys have equal strings, in every process and release of this major version;
// different keys have different strings.
type Key struct {
	align                 int64
	shapeMask, strideMask uint64 // which modes are dynamic
	element               ElementType
	space                 MemSpace
	width                 StrideWidth
	rank                  uint8
	shape, stride         [inlineRank]int64 // the value or, if dynamic, the divisibility
	more                  string            // the same for ranks above inlineRank
}

// Key returns the cache key of the tensor with its current marks. Ranks above eight need one allocation.
func (s *Spec) Key() (k Key) {
	k.align, k.element, k.space, k.rank = s.align, s.element, s.space, s.rank
	if s.large != nil {
		k.setLarge(s.modes())
	} else {
		k.setSmall(&s.small)
	}
	if k.strideMask != 0 {
		k.width = s.width
	}
	return k
}

func (k *Key) setSmall(t *smallTable) {
	k.shape, k.stride = t.extent, t.stride
	for i := range k.rank & 15 {
		i &= inlineRank - 1
		if div := t.shapeDiv[i]; div != 0 {
			k.shape[i] = div
			k.shapeMask |= 1 << i
		}
		if div := t.strideDiv[i]; div != 0 {
			k.stride[i] = div
			k.strideMask |= 1 << i
		}
	}
}

// mode returns a mode's two words and records in the masks which are dynamic.
func (k *Key) mode(m modes, i int) (shape, stride int64) {
	shape, stride = m.extent[i], m.stride[i]
	if div := m.shapeDiv[i]; div != 0 {
		shape = div
		k.shapeMask |= 1 << i
	}
	if div := m.strideDiv[i]; div != 0 {
		stride = div
		k.strideMask |= 1 << i
	}
	return shape, stride
}

func (k *Key) setLarge(m modes) {
	var buffer [MaxRank * 16]byte
	dst := buffer[:0]
	for i := range m.extent {
		shape, stride := k.mode(m, i)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(shape))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(stride))
	}
	k.more = string(dst)
}

// word reads eight bytes of a string, little-endian.
func word(s string) (w uint64) {
	for i := range 8 {
		w |= uint64(s[i]) << (8 * i)
	}
	return w
}

// String returns the key's stable text, such as "Float32@gmem align=16 o (?,20):(?{i64},1)". Dynamic
// strides of unspecified width print as "?", of 64 bits as "?{i64}" and of 32 bits as "?{i32}", so that
// all three differ.
func (k Key) String() string {
	var buffer [256]byte
	dst := append(buffer[:0], k.element.String()...)
	dst = append(dst, '@')
	dst = append(dst, k.space.String()...)
	dst = append(dst, " align="...)
	dst = strconv.AppendInt(dst, k.align, 10)
	dst = append(dst, " o "...)
	dst = k.appendHalf(dst, k.shapeMask, 0, "")
	dst = append(dst, ':')
	dst = k.appendHalf(dst, k.strideMask, 8, [...]string{"", "i64", "i32"}[k.width])
	return string(dst)
}

// appendHalf prints the shape (at 0) or the strides (at 8) of the key.
func (k *Key) appendHalf(dst []byte, mask uint64, at int, width string) []byte {
	var values, div [MaxRank]int64
	small := &k.shape
	if at != 0 {
		small = &k.stride
	}
	for i := range int(k.rank) {
		if k.more != "" {
			values[i] = int64(word(k.more[16*i+at:]))
		} else {
			values[i] = small[i]
		}
		if mask>>i&1 != 0 {
			div[i] = values[i]
		}
	}
	return appendTuple(dst, values[:k.rank], div[:k.rank], width)
}
