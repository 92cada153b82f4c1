package kernel

// Range is the number of work-items of a launch in at most three dimensions, and the size of the
// work-groups. It is a plain value. The last dimension varies fastest, as in C order: for a range Over(h,
// w), get_global_id(0) counts w, and get_global_id(1) counts h.
type Range struct {
	global, local   [3]int
	nglobal, nlocal int
}

// Over returns a range with this number of work-items along each dimension. If an extent is 0, the launch
// is checked and submits nothing.
func Over(extents ...int) Range {
	r := Range{nglobal: len(extents)}
	copy(r.global[:], extents)
	return r
}

// By returns the range with work-groups of this number of work-items along each dimension, which must
// divide the extents. Without it the driver chooses.
func (r Range) By(extents ...int) Range {
	r.nlocal = len(extents)
	copy(r.local[:], extents)
	return r
}
