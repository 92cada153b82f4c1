package usmarray

import (
	"fmt"
	"slices"
)

// MaxDims is the maximum number of dimensions of an array: NumPy's limit, and the limit of the DLPack
// checks.
const MaxDims = 64

// Layout describes the positions of the elements of a strided array: shape, strides and the offset of
// element (0, …, 0), all in elements. Strides may be negative or zero, and have any value on axes of
// length 1; they are kept as given. A Layout is an immutable value and may be used by several goroutines.
// The zero value is the layout of a scalar at offset 0.
//
// Every Layout that this package returns has 0 to MaxDims dimensions and no negative dimension. The
// product of the non-zero dimensions and every element's index fit an int.
type Layout struct {
	shape   []int
	strides []int
	offset  int
}

// NewLayout checks and returns a layout; shape and strides are copied. Nil strides mean C order. Errors:
// ErrLayout for a negative dimension, too many dimensions, a wrong number of strides, or numbers whose
// product or span does not fit an int.
func NewLayout(shape, strides []int, offset int) (Layout, error) {
	l := rowMajor(shape)
	if strides != nil {
		if len(strides) != len(shape) {
			return Layout{}, opErr("NewLayout", ErrLayout, "%d strides for %d dimensions; give one per dimension or none", len(strides), len(shape))
		}
		copy(l.strides, strides)
	}
	l.offset = offset
	if err := l.check(); err != nil {
		return Layout{}, opErr("NewLayout", ErrLayout, "%w", err)
	}
	return l, nil
}

// rowMajor returns the layout of a shape in C order. It does not check the shape.
func rowMajor(shape []int) Layout {
	n := len(shape)
	dims := make([]int, 2*n)
	copy(dims, shape)
	l := Layout{shape: dims[:n:n], strides: dims[n:]}
	fillCStrides(l.strides, shape)
	return l
}

func fillCStrides(strides, shape []int) {
	s := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = s
		s *= max(shape[i], 1)
	}
}

func fillFStrides(strides, shape []int) {
	s := 1
	for i, d := range shape {
		strides[i] = s
		s *= max(d, 1)
	}
}

// checkShape checks the number of dimensions, their signs and their product.
func checkShape(shape []int) error {
	if len(shape) > MaxDims {
		return fmt.Errorf("%d dimensions; at most %d are supported", len(shape), MaxDims)
	}
	n := 1
	for i, d := range shape {
		if d < 0 {
			return fmt.Errorf("dimension %d is %d; a dimension cannot be negative", i, d)
		}
		if d == 0 {
			continue // as in NumPy, the other dimensions must still be possible
		}
		var ok bool
		if n, ok = mulInt(n, d); !ok {
			return fmt.Errorf("shape %s has more elements than an int can count", tuple(shape))
		}
	}
	return nil
}

func (l Layout) check() error {
	if err := checkShape(l.shape); err != nil {
		return err
	}
	if _, _, ok := l.span(); !ok {
		return fmt.Errorf("shape %s with strides %s at offset %d spans more elements than an int can count",
			tuple(l.shape), tuple(l.strides), l.offset)
	}
	return nil
}

// NDim returns the number of dimensions.
func (l Layout) NDim() int { return len(l.shape) }

// Shape returns a copy of the lengths of the axes.
func (l Layout) Shape() []int { return slices.Clone(l.shape) }

// Strides returns a copy of the strides, in elements.
func (l Layout) Strides() []int { return slices.Clone(l.strides) }

// Offset returns the index of element (0, …, 0) from the start of the memory, in elements.
func (l Layout) Offset() int { return l.offset }

// Size returns the number of elements: 1 for a scalar.
func (l Layout) Size() int {
	n := 1
	for _, d := range l.shape {
		n *= d
	}
	return n
}

// bounds returns the half-open range of element indices, relative to the start of the memory, that the
// layout touches: [lo, hi). Both are the offset if the layout is empty.
func (l Layout) bounds() (lo, hi int) {
	lo, hi, _ = l.span()
	return lo, hi
}

// span returns bounds, and whether both ends, and the distance along each axis in either direction, fit an
// int. Strides of axes of length 1, and of empty layouts, are ignored.
func (l Layout) span() (lo, hi int, ok bool) {
	e, ok := extentOf(l.shape, l.strides, l.offset)
	return e.lo, e.hi, ok
}

// extent is the number of elements of a layout, the half-open range [lo, hi) of their positions, and whether
// they are contiguous in row-major order.
type extent struct {
	lo, hi, size int
	isC          bool
}

// extentOf walks the dimensions once, with exact arithmetic. Without strides the elements are in row-major
// order. ok is false if a number does not fit an int, or a length is negative. An empty layout is contiguous
// and spans nothing; its other lengths must be possible.
func extentOf(shape, strides []int, offset int) (e extent, ok bool) {
	e = extent{lo: offset, hi: offset, size: 1, isC: true}
	empty, fits, reachable := false, true, true
	for i := len(shape) - 1; i >= 0; i-- {
		n, stride := shape[i], e.size
		if n <= 0 {
			empty, fits = true, fits && n == 0
			continue
		}
		if strides != nil {
			stride = strides[i]
			e.isC = e.isC && (stride == e.size || n == 1)
		}
		reach, good := mulInt(n-1, stride)
		end := &e.hi
		if reach < 0 {
			end = &e.lo
		}
		var sum, product bool
		*end, sum = addInt(*end, reach)
		e.size, product = mulInt(e.size, n)
		fits, reachable = fits && product, reachable && good && reach != minInt && sum
	}
	if empty {
		return extent{lo: offset, hi: offset, isC: true}, fits
	}
	var last bool
	e.hi, last = addInt(e.hi, 1)
	return e, fits && reachable && last
}

// isC reports whether the elements are contiguous in row-major order. As in NumPy, axes of length 1 do not
// matter and an empty layout is contiguous.
func (l Layout) isC() bool { return l.dense(len(l.shape)-1, -1) }

// isF reports whether the elements are contiguous in column-major order, with the same rules as isC.
func (l Layout) isF() bool { return l.dense(0, 1) }

// dense reports whether the elements are contiguous when axis is the fastest axis and the next ones follow
// in steps of 1 or -1.
func (l *Layout) dense(axis, step int) bool {
	want, contiguous := 1, true
	for range l.shape {
		d := l.shape[axis]
		if d == 0 {
			return true
		}
		if d != 1 {
			contiguous = contiguous && l.strides[axis] == want
			want *= d
		}
		axis += step
	}
	return contiguous
}

// gapless reports whether the elements, which are at least one, occupy every position of their range once:
// the axes longer than 1, in the order of their steps, have the steps of a contiguous layout.
func (l *Layout) gapless() bool {
	left, step := 0, 1
	for _, d := range l.shape {
		if d > 1 {
			left++
		}
	}
	for ; left > 0; left-- {
		next := 0
		for i, d := range l.shape {
			if s := l.strides[i]; d > 1 && (s == step || s == -step) {
				next = d
				break
			}
		}
		if next == 0 {
			return false
		}
		step *= next
	}
	return true
}

// position returns the index of one element from the start of the memory. A negative index counts from the
// end. Errors: ErrLayout for a wrong number of indices, ErrIndex for one out of range.
func (l Layout) position(op string, index []int) (int, error) {
	if len(index) != len(l.shape) {
		return 0, opErr(op, ErrLayout, "%d indices for %d dimensions", len(index), len(l.shape))
	}
	p := l.offset
	for i, x := range index {
		d := l.shape[i]
		if x < -d || x >= d {
			return 0, opErr(op, ErrIndex, "index %d on axis %d of length %d", x, i, d)
		}
		if x < 0 {
			x += d
		}
		p += x * l.strides[i]
	}
	return p, nil
}

// String returns the form "(30,20):(20,1)+5": shape, strides, and the offset unless it is zero.
func (l Layout) String() string {
	s := tuple(l.shape) + ":" + tuple(l.strides)
	if l.offset != 0 {
		s += fmt.Sprintf("%+d", l.offset)
	}
	return s
}

// tuple formats numbers as a Python tuple, without spaces.
func tuple(v []int) string {
	b := []byte{'('}
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%d", x)
	}
	if len(v) == 1 {
		b = append(b, ',')
	}
	return string(append(b, ')'))
}
