package usmarray

import "slices"

// transpose permutes the axes; without arguments it reverses them. Negative axes count from the end.
// Errors: ErrLayout if axes is not a permutation.
func (l Layout) transpose(axes ...int) (Layout, error) {
	n := len(l.shape)
	if len(axes) == 0 {
		out := Layout{shape: l.Shape(), strides: l.Strides(), offset: l.offset}
		slices.Reverse(out.shape)
		slices.Reverse(out.strides)
		return out, nil
	}
	if len(axes) != n {
		return Layout{}, opErr("Transpose", ErrLayout, "%d axes given for %d dimensions", len(axes), n)
	}
	out := newDims(n)
	out.offset = l.offset
	var seen uint64
	for _, a := range axes {
		x, err := l.axis("Transpose", a)
		if err != nil {
			return Layout{}, err
		}
		if seen&(1<<x) != 0 {
			return Layout{}, opErr("Transpose", ErrLayout, "axis %d is named twice in %s", x, tuple(axes))
		}
		seen |= 1 << x
		out.shape = append(out.shape, l.shape[x])
		out.strides = append(out.strides, l.strides[x])
	}
	return out, nil
}

// axis resolves a possibly negative axis.
func (l Layout) axis(op string, a int) (int, error) {
	n := len(l.shape)
	if a < -n || a >= n {
		return 0, opErr(op, ErrIndex, "axis %d of an array with %d dimensions", a, n)
	}
	if a < 0 {
		a += n
	}
	return a, nil
}

// reshape returns the same elements, in C order, with another shape, without moving them. One dimension
// may be -1 and is computed. Errors: ErrLayout if the sizes differ, or if strides cannot express the new
// shape.
func (l Layout) reshape(shape ...int) (Layout, error) {
	want, err := l.inferShape(shape)
	if err != nil {
		return Layout{}, err
	}
	out := rowMajor(want)
	out.offset = l.offset
	if l.Size() != 0 && !l.isC() && !l.reshapeStrides(want, out.strides) {
		return Layout{}, opErr("Reshape", ErrLayout, "shape %s with strides %s cannot become %s without moving elements; copy it first",
			tuple(l.shape), tuple(l.strides), tuple(want))
	}
	return out, nil
}

// inferShape replaces a -1 and checks that the sizes are equal.
func (l Layout) inferShape(shape []int) ([]int, error) {
	want := slices.Clone(shape)
	unknown, known := -1, 1
	for i, d := range want {
		if d == -1 && unknown < 0 {
			unknown = i
			continue
		}
		if d < 0 {
			return nil, opErr("Reshape", ErrLayout, "dimension %d of %s is negative; only one may be -1", i, tuple(shape))
		}
		p, ok := mulInt(known, d)
		if !ok {
			return nil, opErr("Reshape", ErrLayout, "shape %s has more elements than an int can count", tuple(shape))
		}
		known = p
	}
	size := l.Size()
	if unknown >= 0 {
		if known == 0 || size%known != 0 {
			return nil, opErr("Reshape", ErrLayout, "%d elements do not fill shape %s", size, tuple(shape))
		}
		want[unknown] = size / known
		known = size
	}
	if known != size {
		return nil, opErr("Reshape", ErrLayout, "%d elements cannot take shape %s, which has %d", size, tuple(shape), known)
	}
	if err := checkShape(want); err != nil {
		return nil, opErr("Reshape", ErrLayout, "%w", err)
	}
	return want, nil
}

// reshapeStrides computes the strides of a view in C order, or returns false if there is none. It consumes
// axes of both sides in groups of equal size; the source axes of a group must be contiguous with each
// other. No dimension is zero.
func (l Layout) reshapeStrides(want, strides []int) bool {
	var dims, steps []int // the source without axes of length 1
	for i, d := range l.shape {
		if d != 1 {
			dims, steps = append(dims, d), append(steps, l.strides[i])
		}
	}
	i, j := 0, 0
	for i < len(dims) && j < len(want) {
		i0, j0 := i, j
		p, q := dims[i], want[j]
		for p != q {
			if p < q {
				i++
				p *= dims[i]
			} else {
				j++
				q *= want[j]
			}
		}
		for k := i0; k < i; k++ {
			if next, ok := mulInt(steps[k+1], dims[k+1]); !ok || steps[k] != next {
				return false
			}
		}
		s := steps[i]
		for k := j; k >= j0; k-- {
			strides[k] = s
			s *= want[k]
		}
		i++
		j++
	}
	// The remaining axes of the target have length 1.
	last := 1
	if j > 0 {
		last = strides[j-1]
	}
	for ; j < len(want); j++ {
		strides[j] = last
	}
	return true
}

// broadcast repeats axes of length 1, with stride 0, and adds leading axes, to obtain the shape, by
// NumPy's rules. Errors: ErrLayout.
func (l Layout) broadcast(shape ...int) (Layout, error) {
	if err := checkShape(shape); err != nil {
		return Layout{}, opErr("Broadcast", ErrLayout, "%w", err)
	}
	lead := len(shape) - len(l.shape)
	if lead < 0 {
		return Layout{}, opErr("Broadcast", ErrLayout, "shape %s has fewer dimensions than %s", tuple(shape), tuple(l.shape))
	}
	out := newDims(len(shape))
	out.offset = l.offset
	for i, d := range shape {
		s := 0
		if i >= lead {
			have := l.shape[i-lead]
			switch have {
			case d:
				s = l.strides[i-lead]
			case 1:
			default:
				return Layout{}, opErr("Broadcast", ErrLayout, "axis %d of length %d in %s does not broadcast to %d in %s",
					i-lead, have, tuple(l.shape), d, tuple(shape))
			}
		}
		out.shape = append(out.shape, d)
		out.strides = append(out.strides, s)
	}
	return out, nil
}
