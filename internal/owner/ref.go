package owner

// Ref is a handle on a cell: the cell and the generation it had when the handle
// was made. The zero Ref refers to nothing. A Ref is a plain value: copying it
// does not retain.
type Ref struct {
	cell       *Cell
	generation uint32
}

// MakeRef returns the handle of a cell and a generation that travelled apart.
func MakeRef(c *Cell, generation uint32) Ref { return Ref{cell: c, generation: generation} }

// Cell returns the cell, whatever has become of it; nil for the zero Ref.
func (r Ref) Cell() *Cell { return r.cell }

// Generation returns the generation of the handle.
func (r Ref) Generation() uint32 { return r.generation }

// Valid reports whether the memory is still owned through this handle's cell.
func (r Ref) Valid() bool {
	if r.cell == nil {
		return false
	}
	w := r.cell.word.Load()
	return uint32(w>>32) == r.generation && uint32(w) != 0
}

// Count returns the number of references, 0 when the handle is stale.
func (r Ref) Count() uint32 {
	if r.cell == nil {
		return 0
	}
	w := r.cell.word.Load()
	if uint32(w>>32) != r.generation {
		return 0
	}
	return uint32(w)
}

// TryRetain adds a reference if the handle is alive.
func (r Ref) TryRetain() bool {
	if r.cell == nil {
		return false
	}
	for {
		w := r.cell.word.Load()
		if uint32(w>>32) != r.generation || uint32(w) == 0 {
			return false
		}
		if r.cell.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

// TryUnref drops a reference: ok is false when the handle is stale, last true
// when the reference was the last and the caller must finish the cell.
func (r Ref) TryUnref() (last, ok bool) {
	if r.cell == nil {
		return false, false
	}
	for {
		w := r.cell.word.Load()
		if uint32(w>>32) != r.generation || uint32(w) == 0 {
			return false, false
		}
		if r.cell.word.CompareAndSwap(w, w-1) {
			return uint32(w) == 1, true
		}
	}
}

// suspended is the bit of a generation that is turned over while a cell is
// suspended: every handle is stale then, and each can tell why.
const suspended = uint64(1) << 63

// Suspend makes every handle stale until Resume, if the cell is alive through this
// one and its count is 1; it reports whether it did. C must hold no reference.
func (r Ref) Suspend() bool {
	if r.cell == nil {
		return false
	}
	w := uint64(r.generation)<<32 | 1
	return r.cell.word.CompareAndSwap(w, w^suspended)
}

// Resume ends Suspend, by the handle that was suspended, and reports whether the
// cell was still as Suspend had left it.
func (r Ref) Resume() bool {
	if r.cell == nil {
		return false
	}
	w := uint64(r.generation)<<32 | 1
	return r.cell.word.CompareAndSwap(w^suspended, w)
}

// Suspended reports whether the handle is stale because its cell is suspended.
func (r Ref) Suspended() bool {
	return r.cell != nil && r.cell.word.Load() == (uint64(r.generation)<<32|1)^suspended
}

// Gone reports whether the handle is stale for good: neither alive nor suspended, at
// one moment. Asked one after the other, Valid and Suspended may both say no of a cell
// that goes from one to the other.
func (r Ref) Gone() bool {
	if r.cell == nil {
		return true
	}
	w := r.cell.word.Load()
	alive := uint32(w>>32) == r.generation && uint32(w) != 0
	return !alive && w != (uint64(r.generation)<<32|1)^suspended
}
