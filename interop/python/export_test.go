package python

import "unsafe"

// Exported for tests.
var (
	Alive = opAlive
	Held  = opHoldsGIL
	Less  = Version.less
)

// NewReference returns a new reference, as C code would own it.
func NewReference(o *Object) (unsafe.Pointer, error) { return o.newReference("NewReference") }

// Borrow returns a borrowed Object, as the arguments of a Func are.
func Borrow(p unsafe.Pointer) *Object { return borrow(p) }

// DropLater releases a reference as the cleanup of an Object that was not released does.
func DropLater(p unsafe.Pointer) { opDecrefLater(p) }
