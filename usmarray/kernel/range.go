package kernel

import "unsafe"

// Range is over how many work-items a kernel runs, and in groups of which size. It is a
// plain value, of at most three dimensions. The last dimension runs fastest, as in C order:
// of a range Over(h, w) get_global_id(0) counts w, and get_global_id(1) counts h.
type Range struct {
	global, local   [3]int
	nglobal, nlocal int
}

// Over is a range of so many work-items along each dimension. With an extent of 0 there is
// nothing to run: the launch is checked and submits nothing.
func Over(extents ...int) Range {
	r := Range{nglobal: len(extents)}
	copy(r.global[:], extents)
	return r
}

// By gives the range work-groups of so many work-items along each dimension, which must
// divide its extents. Without it the driver chooses.
func (r Range) By(extents ...int) Range {
	r.nlocal = len(extents)
	copy(r.local[:], extents)
	return r
}

func sizeof[T any](v T) uintptr { return unsafe.Sizeof(v) }
