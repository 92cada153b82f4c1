package usmarray

import (
	"cmp"
	"slices"
	"unsafe"
)

// walkAxis is one axis of a walk over two layouts of the same shape; strides are in elements.
type walkAxis struct{ n, a, b int }

// walk is a plan for visiting the elements of two layouts of the same shape in an order that suits the
// memory: axes of length 1 are removed, axes that are contiguous with each other in both layouts are
// merged, and the axis with the smallest stride of a is last.
type walk struct {
	axes       []walkAxis
	posA, posB int
	empty      bool
}

// planWalk plans a walk. The visiting order is free; the strides of a become positive.
func planWalk(a, b *Layout) walk {
	w := walk{posA: a.offset, posB: b.offset, axes: make([]walkAxis, 0, len(a.shape))}
	for i, d := range a.shape {
		if d == 0 {
			w.empty = true
			return w
		}
		if d == 1 {
			continue
		}
		x := walkAxis{d, a.strides[i], b.strides[i]}
		if x.a < 0 { // start from the other end
			w.posA += (d - 1) * x.a
			w.posB += (d - 1) * x.b
			x.a, x.b = -x.a, -x.b
		}
		w.axes = append(w.axes, x)
	}
	slices.SortStableFunc(w.axes, func(x, y walkAxis) int { return cmp.Compare(y.a, x.a) })
	w.merge()
	return w
}

func (w *walk) merge() {
	out := w.axes[:0]
	for _, x := range w.axes {
		if k := len(out) - 1; k >= 0 && out[k].a == x.a*x.n && out[k].b == x.b*x.n {
			out[k] = walkAxis{out[k].n * x.n, x.a, x.b}
			continue
		}
		out = append(out, x)
	}
	w.axes = out
}

// row removes the innermost axis from the plan and returns it: n elements with steps a and b.
func (w *walk) row() (n, a, b int) {
	if len(w.axes) == 0 {
		return 1, 1, 1
	}
	x := w.axes[len(w.axes)-1]
	w.axes = w.axes[:len(w.axes)-1]
	return x.n, x.a, x.b
}

// each visits the first positions of all remaining rows. It stops at the first error.
func (w *walk) each(visit func(posA, posB int) error) error {
	if w.empty {
		return nil
	}
	index := make([]int, len(w.axes))
	pa, pb := w.posA, w.posB
	for {
		if err := visit(pa, pb); err != nil {
			return err
		}
		k := len(index) - 1
		for ; k >= 0; k-- {
			x := &w.axes[k]
			if index[k]++; index[k] < x.n {
				pa += x.a
				pb += x.b
				break
			}
			pa -= x.a * (x.n - 1)
			pb -= x.b * (x.n - 1)
			index[k] = 0
		}
		if k < 0 {
			return nil
		}
	}
}

// copyStrided copies elements of size bytes between host memories. dst and src are the addresses of
// position 0.
func copyStrided(dst, src unsafe.Pointer, dl, sl *Layout, size int) {
	w := planWalk(dl, sl)
	if w.empty {
		return
	}
	n, ds, ss := w.row()
	row := rowCopier(size, ds, ss)
	// The callback never fails.
	_ = w.each(func(pd, ps int) error {
		row(unsafe.Add(dst, pd*size), unsafe.Add(src, ps*size), n, ds, ss)
		return nil
	})
}

// rowCopier selects the loop for one row of elements.
func rowCopier(size, ds, ss int) func(dst, src unsafe.Pointer, n, ds, ss int) {
	if ds == 1 && ss == 1 {
		return func(dst, src unsafe.Pointer, n, _, _ int) {
			copyBytes(unsafe.Slice((*byte)(dst), n*size), unsafe.Slice((*byte)(src), n*size))
		}
	}
	if ds == 1 && ss == 0 {
		return func(dst, src unsafe.Pointer, n, _, _ int) {
			repeatElement(unsafe.Slice((*byte)(dst), n*size), unsafe.Slice((*byte)(src), size))
		}
	}
	switch size {
	case 1:
		return copyRow[uint8]
	case 2:
		return copyRow[uint16]
	case 4:
		return copyRow[uint32]
	case 8:
		return copyRow[uint64]
	case 16:
		return copyRow[[2]uint64]
	}
	return func(dst, src unsafe.Pointer, n, ds, ss int) {
		for i := range n {
			copy(unsafe.Slice((*byte)(unsafe.Add(dst, i*ds*size)), size), unsafe.Slice((*byte)(unsafe.Add(src, i*ss*size)), size))
		}
	}
}

// copyBytes copies in pieces. From 1 MiB on, Go's copy bypasses the caches, which takes twice as long for
// memory that fits them, and gains little otherwise.
func copyBytes(dst, src []byte) {
	const piece = 1 << 19
	for len(src) > piece {
		copy(dst[:piece], src[:piece])
		dst, src = dst[piece:], src[piece:]
	}
	copy(dst, src)
}

// repeatElement fills dst with copies of an element: it doubles the filled part up to a page, and then
// copies that page while it is in the cache.
func repeatElement(dst, element []byte) {
	const piece = 1 << 12
	done := copy(dst, element)
	for done < len(dst) {
		done += copy(dst[done:], dst[:min(done, max(piece/len(element), 1)*len(element))])
	}
}

func copyRow[T any](dst, src unsafe.Pointer, n, ds, ss int) {
	var t T
	ds, ss = ds*int(unsafe.Sizeof(t)), ss*int(unsafe.Sizeof(t))
	// Compute addresses from offsets: stepping a pointer would leave the memory.
	for d, s := 0, 0; n > 0; n, d, s = n-1, d+ds, s+ss {
		*(*T)(unsafe.Add(dst, d)) = *(*T)(unsafe.Add(src, s))
	}
}

// fillStrided writes one element, of size bytes at value, to every position.
func fillStrided(dst unsafe.Pointer, dl *Layout, value unsafe.Pointer, size int) {
	zero := Layout{shape: dl.shape, strides: make([]int, len(dl.shape))}
	copyStrided(dst, value, dl, &zero, size)
}
