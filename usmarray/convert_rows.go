package usmarray

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
)

// row converts n elements that are ds and ss bytes apart; dst and src are the addresses of the first.
// Sub-byte elements occupy a byte each.
type row func(dst, src unsafe.Pointer, n, ds, ss int)

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

// at returns the element at an index. The address is computed from the index, because stepping a pointer
// would leave the memory at the end.
func at[T any](p unsafe.Pointer, i, step int) *T { return (*T)(unsafe.Add(p, i*step)) }

// castRow converts as Go does: integers wrap, floating-point numbers round to nearest even, once. It does
// not convert from float to integer.
func castRow[D, S integer | float](dst, src unsafe.Pointer, n, ds, ss int) {
	if ds == int(unsafe.Sizeof(D(0))) && ss == int(unsafe.Sizeof(S(0))) {
		d, s := unsafe.Slice((*D)(dst), n), unsafe.Slice((*S)(src), n)
		for i, x := range s {
			d[i] = D(x)
		}
		return
	}
	for i := range n {
		*at[D](dst, i, ds) = D(*at[S](src, i, ss))
	}
}

// limits returns the smallest and the largest integer of a type, and the power of two above the largest.
func limits[D integer]() (lo, hi D, above float64) {
	n := 8 * int(unsafe.Sizeof(lo))
	if lo--; lo > 0 {
		return 0, lo, math.Ldexp(1, n)
	}
	hi = D(1)<<(n-2) - 1 + D(1)<<(n-2)
	return -hi - 1, hi, math.Ldexp(1, n-1)
}

// cutRow truncates and saturates; NaN becomes 0.
func cutRow[D integer, S float](dst, src unsafe.Pointer, n, ds, ss int) {
	lo, hi, above := limits[D]()
	below := float64(lo)
	for i := range n {
		var y D
		switch x := float64(*at[S](src, i, ss)); {
		case x > below && x < above:
			y = D(x)
		case x >= above:
			y = hi
		case x <= below:
			y = lo
		}
		*at[D](dst, i, ds) = y
	}
}

// truthRow converts to bool: every value except zero is true.
func truthRow[S integer | float](dst, src unsafe.Pointer, n, ds, ss int) {
	for i := range n {
		*at[bool](dst, i, ds) = *at[S](src, i, ss) != 0
	}
}

// oneRow converts bool to 0 and 1. Foreign memory may hold any byte for true.
func oneRow[D integer | float](dst, src unsafe.Pointer, n, ds, ss int) {
	for i := range n {
		var y D
		if *at[uint8](src, i, ss) != 0 {
			y = 1
		}
		*at[D](dst, i, ds) = y
	}
}

// The indices in nativeRows of the native types.
const (
	signed   = 0 // and the next three, by width
	unsigned = 4
	floating = 6 // float32 is 8, float64 9
	boolean  = 10
)

// nativeOf returns the index of an element type in nativeRows, -1 for types that Go lacks.
func nativeOf(dt DataType) int {
	width := bits.TrailingZeros8(dt.Bits) - 3
	switch {
	case dt == Bool:
		return boolean
	case dt.Code == dlpack.CodeInt && width >= 0:
		return signed + width
	case dt.Code == dlpack.CodeUInt && width >= 0:
		return unsigned + width
	case dt == Float32, dt == Float64:
		return floating + width
	}
	return -1
}

// nativeRows holds the loops between the native types, by source and destination.
var nativeRows = [boolean + 1][boolean + 1]row{
	fromInteger[int8](), fromInteger[int16](), fromInteger[int32](), fromInteger[int64](),
	fromInteger[uint8](), fromInteger[uint16](), fromInteger[uint32](), fromInteger[uint64](),
	fromFloat[float32](), fromFloat[float64](),
	{
		oneRow[int8], oneRow[int16], oneRow[int32], oneRow[int64], oneRow[uint8], oneRow[uint16], oneRow[uint32], oneRow[uint64],
		oneRow[float32], oneRow[float64], oneRow[uint8],
	},
}

func fromInteger[S integer]() [boolean + 1]row {
	return [...]row{
		castRow[int8, S], castRow[int16, S], castRow[int32, S], castRow[int64, S],
		castRow[uint8, S], castRow[uint16, S], castRow[uint32, S], castRow[uint64, S],
		castRow[float32, S], castRow[float64, S], truthRow[S],
	}
}

func fromFloat[S float]() [boolean + 1]row {
	return [...]row{
		cutRow[int8, S], cutRow[int16, S], cutRow[int32, S], cutRow[int64, S],
		cutRow[uint8, S], cutRow[uint16, S], cutRow[uint32, S], cutRow[uint64, S],
		castRow[float32, S], castRow[float64, S], truthRow[S],
	}
}

// blockLen is the number of elements converted at a time in conversions with two steps, so that they stay
// in the cache in between.
const blockLen = 512

// through converts in two steps, by way of elements of width bytes.
func through(width, n int, in, out row) row {
	k := min(n, blockLen)
	block := unsafe.Pointer(unsafe.SliceData(make([]uint64, (k*width+7)/8)))
	return func(dst, src unsafe.Pointer, n, ds, ss int) {
		for i := 0; i < n; i += k {
			m := min(k, n-i)
			in(block, unsafe.Add(src, i*ss), m, width, ss)
			out(unsafe.Add(dst, i*ds), block, m, ds, width)
		}
	}
}

// decodeRow converts to float32, which represents the values of all narrow formats.
func decodeRow(dt DataType) row {
	f := dt.FloatFormat()
	switch {
	case dt == Bfloat16:
		return func(dst, src unsafe.Pointer, n, ds, ss int) {
			for i := range n {
				*at[float32](dst, i, ds) = at[dlpack.BF16](src, i, ss).Float32()
			}
		}
	case dt == Float16:
		return func(dst, src unsafe.Pointer, n, ds, ss int) {
			for i := range n {
				*at[float32](dst, i, ds) = at[dlpack.F16](src, i, ss).Float32()
			}
		}
	}
	return func(dst, src unsafe.Pointer, n, ds, ss int) {
		for i := range n {
			*at[float32](dst, i, ds) = float32(f.Decode(uint64(*at[uint8](src, i, ss))))
		}
	}
}

// encodeRow converts to a narrow format.
func encodeRow[S float](dt DataType) row {
	f := dt.FloatFormat()
	switch {
	case dt == Bfloat16 && unsafe.Sizeof(S(0)) == 4:
		return func(dst, src unsafe.Pointer, n, ds, ss int) {
			for i := range n {
				*at[dlpack.BF16](dst, i, ds) = dlpack.BF16From(*at[float32](src, i, ss))
			}
		}
	case dt == Float16 && unsafe.Sizeof(S(0)) == 4:
		return func(dst, src unsafe.Pointer, n, ds, ss int) {
			for i := range n {
				*at[dlpack.F16](dst, i, ds) = dlpack.F16From(*at[float32](src, i, ss))
			}
		}
	case dt.Bits == 16:
		return func(dst, src unsafe.Pointer, n, ds, ss int) {
			for i := range n {
				*at[uint16](dst, i, ds) = uint16(f.Encode(float64(*at[S](src, i, ss))))
			}
		}
	}
	return func(dst, src unsafe.Pointer, n, ds, ss int) {
		for i := range n {
			*at[uint8](dst, i, ds) = uint8(f.Encode(float64(*at[S](src, i, ss))))
		}
	}
}

// oddRow converts wide integers to float64 for a second rounding: it rounds to odd, so that the second
// rounding does not see a false tie.
func oddRow[S int64 | uint64](dst, src unsafe.Pointer, n, ds, ss int) {
	for i := range n {
		x, sign := *at[S](src, i, ss), 1.0
		m := uint64(x)
		if x < 0 {
			m, sign = -m, -1
		}
		if m > 1<<53 {
			rest := m & (1<<11 - 1)
			m -= rest
			if rest != 0 {
				m |= 1 << 11
			}
		}
		*at[float64](dst, i, ds) = sign * float64(m)
	}
}

// extendRow converts sub-byte integers to whole bytes.
func extendRow(dt DataType) row {
	n := 8 - int(dt.Bits)
	if dt.Code == dlpack.CodeUInt {
		return lowRow(dt)
	}
	return func(dst, src unsafe.Pointer, count, ds, ss int) {
		for i := range count {
			*at[int8](dst, i, ds) = *at[int8](src, i, ss) << n >> n
		}
	}
}

// lowRow keeps the bits of a sub-byte element.
func lowRow(dt DataType) row {
	mask := uint8(1)<<dt.Bits - 1
	return func(dst, src unsafe.Pointer, n, ds, ss int) {
		for i := range n {
			*at[uint8](dst, i, ds) = *at[uint8](src, i, ss) & mask
		}
	}
}

// cutNarrowRow is cutRow to a sub-byte integer.
func cutNarrowRow[S float](dt DataType) row {
	mask := uint8(1)<<dt.Bits - 1
	lo, hi := 0.0, float64(mask)
	if dt.Code == dlpack.CodeInt {
		lo, hi = -float64(mask/2)-1, float64(mask/2)
	}
	return func(dst, src unsafe.Pointer, n, ds, ss int) {
		for i := range n {
			var y uint8
			if x := float64(*at[S](src, i, ss)); x == x {
				y = uint8(int8(min(max(x, lo), hi))) & mask
			}
			*at[uint8](dst, i, ds) = y
		}
	}
}

// zeroRow clears the imaginary parts.
func zeroRow(dst unsafe.Pointer, n, ds, size int) {
	for i := range n {
		clear(unsafe.Slice(at[byte](dst, i, ds), size))
	}
}
