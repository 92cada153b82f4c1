package owner

// Ref is a handle of a cell: the cell and its generation when the handle was made. The zero Ref refers
// to no cell. Copying a Ref does not retain the cell.
//
// A generation has 32 bits. When a cell has been reused 2^32 times, old handles are valid again for one
// use of the cell. If a program does nothing but reuse one cell, every 20 ns, this takes 86 seconds. Do not
// keep handles of released memory to find out later whether it is gone.
type Ref struct {
	cell       *Cell
	generation uint32
}

// MakeRef returns the handle of a cell and a generation that were stored separately.
func MakeRef(c *Cell, generation uint32) Ref { return Ref{cell: c, generation: generation} }

// Cell returns the cell, even if the handle is stale, or nil for the zero Ref.
func (r Ref) Cell() *Cell { return r.cell }

// Generation returns the generation of the handle.
func (r Ref) Generation() uint32 { return r.generation }

// Valid reports whether the cell is alive and has the generation of the handle.
func (r Ref) Valid() bool {
	if r.cell == nil {
		return false
	}
	w := r.cell.word.Load()
	return uint32(w>>32) == r.generation && uint32(w) != 0
}

// Count returns the number of references, or 0 if the handle is stale.
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

// TryRetain adds a reference if the handle is valid, and reports whether it did.
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

// TryUnref drops a reference. ok is false if the handle is stale. last is true if the reference was the
// last: the caller must finish the cell.
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
