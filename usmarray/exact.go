package usmarray

import "math/bits"

// mulInt multiplies; ok is false if the product does not fit an int.
func mulInt(a, b int) (p int, ok bool) {
	p = a * b
	if uint(a|b) < 1<<(intBits/2-1) {
		return p, true // both small and not negative, the common case
	}
	return mulIntWide(a, b)
}

func mulIntWide(a, b int) (p int, ok bool) {
	p = a * b
	if a == 0 || b == 0 {
		return 0, true
	}
	// The quotient test alone misses minInt * -1, which wraps onto itself.
	if (a == -1 && b == minInt) || (b == -1 && a == minInt) {
		return 0, false
	}
	return p, p/b == a
}

// addInt adds; ok is false if the sum does not fit an int.
func addInt(a, b int) (s int, ok bool) {
	s = a + b
	return s, (s > a) == (b > 0)
}

const (
	maxInt = int(^uint(0) >> 1)
	minInt = -maxInt - 1
)

// ceilBytes returns the number of bytes of n packed elements of elemBits bits.
func ceilBytes(n, elemBits int) (int, bool) {
	if elemBits%8 == 0 {
		return mulInt(n, elemBits/8)
	}
	hi, lo := bits.Mul64(uint64(n), uint64(elemBits))
	if n < 0 || hi != 0 || lo > uint64(maxInt)-7 {
		return 0, false
	}
	return int((lo + 7) / 8), true
}
