package owner

import "fmt"

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

// Retain adds a reference. It panics with a [StaleError] when the memory has
// been released.
func (r Ref) Retain() {
	if !r.TryRetain() {
		panic(r.stale("Retain"))
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

// Release drops a reference; the last one finishes the cell ([Cell.Finish]). It
// panics with a [StaleError] when the memory has been released already.
func (r Ref) Release() {
	last, ok := r.TryUnref()
	if !ok {
		panic(r.stale("Release"))
	}
	if last {
		r.cell.Finish()
	}
}

// StaleError is the value of the panic on use after release.
type StaleError struct {
	Op         string // what was tried
	Generation uint32 // of the handle
	Now        uint32 // of the cell; equal when the memory is dead and not yet reused
}

// Error says what happened.
func (e *StaleError) Error() string {
	return fmt.Sprintf("owner: %s of memory that was released (handle's generation %d, cell's %d): "+
		"keep a reference with Retain for as long as the memory is used", e.Op, e.Generation, e.Now)
}

func (r Ref) stale(op string) *StaleError {
	e := &StaleError{Op: op, Generation: r.generation}
	if r.cell != nil {
		e.Now = r.cell.Generation()
	}
	return e
}
