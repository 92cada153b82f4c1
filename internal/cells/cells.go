// Package cells converts between buffers and owner cells, for the packages of this module that exchange memory with C.
// The conversions are here and not in memmgr, because users of memmgr have no use for owner cells.
package cells

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr"
)

// A Buffer has one field, an owner.Ref. Neither of these arrays can have a negative length.
var (
	_ [unsafe.Sizeof(memmgr.Buffer{}) - unsafe.Sizeof(owner.Ref{})]struct{}
	_ [unsafe.Sizeof(owner.Ref{}) - unsafe.Sizeof(memmgr.Buffer{})]struct{}
)

// Buffer returns the handle of the memory of a cell. It adds no reference and takes none over.
func Buffer(c *owner.Cell) memmgr.Buffer {
	ref := c.Ref()
	return *(*memmgr.Buffer)(unsafe.Pointer(&ref))
}

// Of returns the owner cell of a buffer, and panics after the last reference was released. A reference that C will drop
// must be added with Retain first.
func Of(b memmgr.Buffer) *owner.Cell {
	ref := *(*owner.Ref)(unsafe.Pointer(&b))
	if !ref.Valid() {
		b.Address() // panics with the reason
	}
	return ref.Cell()
}
