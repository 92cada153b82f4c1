package usmarray

// Index is one item of a basic index, such as the items between the commas of NumPy's x[i, a:b:c, ...,
// None]. The functions IndexAt, IndexRange, IndexFrom and IndexTo return one; All, NewAxis and Ellipsis
// are the others. It is an immutable value.
type Index struct {
	kind              indexKind
	start, stop, step int
	hasStart, hasStop bool
}

type indexKind uint8

const (
	indexSlice indexKind = iota
	indexAt
	indexNewAxis
	indexEllipsis
)

var (
	// All selects a whole axis, like ":".
	All = Index{step: 1}
	// NewAxis inserts an axis of length 1 (with stride 0), like None.
	NewAxis = Index{kind: indexNewAxis}
	// Ellipsis stands for an All on every axis without an item, like "...".
	Ellipsis = Index{kind: indexEllipsis}
)

// IndexAt selects one element of an axis and removes the axis. A negative i counts from the end.
func IndexAt(i int) Index { return Index{kind: indexAt, start: i} }

// IndexRange selects start, start+1, … up to but not including stop, like "start:stop". Negative numbers
// count from the end, and both are clipped to the axis, as in Python.
func IndexRange(start, stop int) Index {
	return Index{start: start, stop: stop, step: 1, hasStart: true, hasStop: true}
}

// IndexFrom selects all elements from start on, like "start:".
func IndexFrom(start int) Index { return Index{start: start, step: 1, hasStart: true} }

// IndexTo selects all elements before stop, like ":stop".
func IndexTo(stop int) Index { return Index{stop: stop, step: 1, hasStop: true} }

// By returns the same slice with a step, like "start:stop:step"; a negative step goes backwards. A step of
// 0 is an error when the index is used.
func (x Index) By(step int) Index {
	x.step = step
	return x
}

// resolve returns the first index and the number of elements of a slice of an axis of length d, by
// Python's rules.
func (x Index) resolve(d int) (first, count int) {
	lower, upper := 0, d
	if x.step < 0 {
		lower, upper = -1, d-1
	}
	clip := func(v int) int {
		if v < 0 {
			return max(v+d, lower)
		}
		return min(v, upper)
	}
	start, stop := lower, upper
	if x.step < 0 {
		start, stop = upper, lower
	}
	if x.hasStart {
		start = clip(x.start)
	}
	if x.hasStop {
		stop = clip(x.stop)
	}
	switch {
	case x.step > 0 && stop > start:
		return start, (stop-start-1)/x.step + 1
	case x.step < 0 && stop < start:
		// -(step+1)+1 would be step's magnitude; dividing by the negative
		// step keeps the most negative int possible.
		return start, (stop-start+1)/x.step + 1
	}
	return start, 0
}

// index applies a basic index. Axes without an item are kept. The offset of an empty result is that of the
// source, so that it never points outside the memory. Errors: ErrLayout for too many items, two ellipses
// or a step of 0; ErrIndex for an IndexAt out of range.
func (l Layout) index(items ...Index) (Layout, error) {
	used, ellipses, added := 0, 0, 0
	for _, x := range items {
		switch x.kind {
		case indexEllipsis:
			ellipses++
		case indexNewAxis:
			added++
		default:
			used++
		}
	}
	if ellipses > 1 {
		return Layout{}, opErr("Index", ErrLayout, "an index can hold one Ellipsis, found %d", ellipses)
	}
	if used > len(l.shape) {
		return Layout{}, opErr("Index", ErrLayout, "%d items index an array of %d dimensions", used, len(l.shape))
	}
	if len(l.shape)+added > MaxDims {
		return Layout{}, opErr("Index", ErrLayout, "the result would have more than %d dimensions", MaxDims)
	}
	b := indexer{src: &l, out: newDims(len(l.shape) + added), rest: len(l.shape) - used}
	for _, x := range items {
		if err := b.apply(x); err != nil {
			return Layout{}, err
		}
	}
	for b.axis < len(l.shape) {
		b.keep()
	}
	b.finish()
	return b.out, nil
}

// newDims returns an empty layout with room for n dimensions in one block.
func newDims(n int) Layout {
	d := make([]int, 2*n)
	return Layout{shape: d[0:0:n], strides: d[n:n]}
}

// indexer applies the items of an index to the axes of src.
type indexer struct {
	src  *Layout
	out  Layout
	axis int // next axis of src
	rest int // number of axes that Ellipsis stands for
	off  int // offset so far; discarded if the result is empty
}

func (b *indexer) push(dim, stride int) {
	b.out.shape = append(b.out.shape, dim)
	b.out.strides = append(b.out.strides, stride)
}

func (b *indexer) keep() {
	b.push(b.src.shape[b.axis], b.src.strides[b.axis])
	b.axis++
}

func (b *indexer) apply(x Index) error {
	switch x.kind {
	case indexNewAxis:
		b.push(1, 0)
		return nil
	case indexEllipsis:
		for range b.rest {
			b.keep()
		}
		return nil
	}
	d, s := b.src.shape[b.axis], b.src.strides[b.axis]
	if x.kind == indexAt {
		i := x.start
		if i < -d || i >= d {
			return opErr("Index", ErrIndex, "index %d on axis %d of length %d", i, b.axis, d)
		}
		if i < 0 {
			i += d
		}
		b.off += i * s
		b.axis++
		return nil
	}
	if x.step == 0 {
		return opErr("Index", ErrLayout, "the slice on axis %d has step 0", b.axis)
	}
	first, n := x.resolve(d)
	if n > 0 {
		b.off += first * s
	}
	// The stride of a result with fewer than two elements is not used. With
	// a huge step it could overflow; keep the source's stride then.
	if t, ok := mulInt(s, x.step); ok {
		s = t
	}
	b.push(n, s)
	b.axis++
	return nil
}

func (b *indexer) finish() {
	b.out.offset = b.src.offset + b.off
	if b.out.Size() == 0 {
		b.out.offset = b.src.offset
	}
}
