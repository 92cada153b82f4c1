package python

import "unsafe"

// Alive and Held tell tests what the C side thinks.
var (
	Alive = opAlive
	Held  = opHeld
)

// NewReference gives a test what C code would have: a reference of its own.
func NewReference(o *Object) (unsafe.Pointer, error) { return o.newReference("NewReference") }

// Borrow is what the arguments of a Func are.
func Borrow(p unsafe.Pointer) *Object { return borrow(p) }

// DropLater gives such a reference up as the cleanup of a forgotten Object does.
func DropLater(p unsafe.Pointer) { opDecrefLater(p) }
