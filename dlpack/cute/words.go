package cute

import "math/bits"

// The flat form of a Spec: a header of three words, then the extents, strides,
// divisors of extents and of strides, one word each per mode, then the
// stride order, one byte per mode. Header word 0 holds one byte each for version,
// element type, memory space, stride width, leading rule, rank, and ordered.
// Word 1 is the alignment, word 2 the span.
const (
	wordsVersion = 1
	wordsHeader  = 3
)

// wordCount returns the length of the flat form of a Spec with the given rank.
func wordCount(rank int) int { return wordsHeader + 4*rank + (rank+7)/8 }

// AppendWords appends the Spec's flat form to dst and returns it: words without
// pointers, for C memory that cannot hold a Spec. The content is private to the process that wrote it.
func (s *Spec) AppendWords(dst []int64) []int64 {
	head := int64(wordsVersion) | int64(s.element)<<8 | int64(s.space)<<16 | int64(s.width)<<24 |
		int64(s.leading)<<32 | int64(s.rank)<<40
	if s.ordered {
		head |= 1 << 48
	}
	m := s.modes()
	dst = append(dst, head, s.align, s.span)
	dst = append(dst, m.extent...)
	dst = append(dst, m.stride...)
	dst = append(dst, m.shapeDiv...)
	dst = append(dst, m.strideDiv...)
	for at := 0; at < len(m.order); at += 8 {
		var w int64
		for i, mode := range m.order[at:min(at+8, len(m.order))] {
			w |= int64(mode) << (8 * i)
		}
		dst = append(dst, w)
	}
	return dst
}

// SpecFromWords reads the flat form. It fails with ErrLayout for words that AppendWords cannot have
// written.
func SpecFromWords(words []int64) (Spec, error) {
	var s Spec
	err := s.fromWords(words)
	return s, err
}

func (s *Spec) fromWords(words []int64) error {
	if len(words) < wordsHeader {
		return fail(ErrLayout, "%d words are too few for the flat form of a Spec, which has at least %d", len(words), wordsHeader)
	}
	head := words[0]
	field := func(n int) uint8 { return uint8(head >> (8 * n)) }
	rank := int(field(5))
	if field(0) != wordsVersion || field(1) == 0 || ElementType(field(1)) >= elementTypes ||
		field(2) == 0 || MemSpace(field(2)) > GMem || StrideWidth(field(3)) > Strides32 ||
		LeadingRule(field(4)) > LeadingSkipSizeOne || rank > MaxRank || head>>49 != 0 {
		return fail(ErrLayout, "0x%016x is not the first word of the flat form of a Spec", uint64(head))
	}
	if len(words) != wordCount(rank) {
		return fail(ErrLayout, "the flat form of a Spec of rank %d has %d words, but %d were given", rank, wordCount(rank), len(words))
	}
	if words[1] < 1 || bits.OnesCount64(uint64(words[1])) != 1 {
		return fail(ErrAlignment, "the alignment %d in the flat form of a Spec is not a power of two", words[1])
	}
	s.element, s.space, s.width = ElementType(field(1)), MemSpace(field(2)), StrideWidth(field(3))
	s.leading, s.rank, s.ordered = LeadingRule(field(4)), uint8(rank), field(6) == 1
	s.align = words[1]
	s.takeTable()
	m := s.modes()
	rest := words[wordsHeader:]
	for _, part := range [...][]int64{m.extent, m.stride, m.shapeDiv, m.strideDiv} {
		copy(part, rest)
		rest = rest[rank:]
	}
	for i := range m.order {
		m.order[i] = uint8(rest[i/8] >> (8 * (i % 8)))
	}
	return s.checkWords(m, words[2])
}

// checkWords refuses values that violate the assumptions of other methods.
func (s *Spec) checkWords(m modes, span int64) error {
	var seen uint64
	for i := range m.extent {
		if m.extent[i] < 0 || m.shapeDiv[i] < 0 || m.strideDiv[i] < 0 {
			return fail(ErrLayout, "mode %d in the flat form of a Spec has a negative extent or divisibility", i)
		}
		if m.order[i] < s.rank {
			seen |= 1 << m.order[i]
		}
	}
	if s.ordered && bits.OnesCount64(seen) != int(s.rank) {
		return fail(ErrLayout, "the stride order in the flat form of a Spec is not a permutation of its %d modes", s.rank)
	}
	// The span is recomputed for comparison. Marks do not change it.
	found, err := spanOf(m)
	if err != nil {
		return err
	}
	if found != span {
		return fail(ErrLayout, "the flat form of a Spec has a span of %d elements, but its layout has %d", span, found)
	}
	s.span = span
	return nil
}
