package memmgr

import (
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Buffer is a handle on memory with counted references. It is a plain value of
// two words; copying it does not retain. The zero Buffer refers to no memory:
// Valid is false, and everything else panics.
type Buffer struct {
	ref owner.Ref
}

// FromCell returns the handle of memory whose owner cell came from C or from
// another package. It takes over no reference: call Retain to own one.
func FromCell(c *owner.Cell) Buffer { return Buffer{ref: c.Ref()} }

// Cell returns the owner cell, for exchange with C. A reference that C will
// drop must be added with Retain first.
func (b Buffer) Cell() *owner.Cell {
	c := b.live("Cell")
	if c.Tag != 0 { // others do not sleep
		c.SetFlags(owner.Shown)
	}
	return c
}

// Valid reports whether the memory is alive, awake or asleep.
func (b Buffer) Valid() bool { return !b.ref.Gone() }

// Count returns the number of references, 0 after the last release.
func (b Buffer) Count() int {
	n := b.ref.Count()
	if n == 0 && !b.ref.Gone() {
		n = 1 // asleep, or it was until now
	}
	return int(n)
}

// live returns the cell of memory that is alive, or panics.
func (b Buffer) live(op string) *owner.Cell {
	if !b.ref.Valid() {
		panic(b.stale(op))
	}
	return b.ref.Cell()
}

// known is live for what tells about the memory and does not touch it: that may be
// asleep.
func (b Buffer) known(op string) *owner.Cell {
	if !b.Valid() {
		panic(b.stale(op))
	}
	return b.ref.Cell()
}

// Retain adds a reference and returns the same handle.
func (b Buffer) Retain() Buffer {
	if !b.ref.TryRetain() {
		panic(b.stale("Retain"))
	}
	return b
}

// TryRetain adds a reference unless the memory is gone already, and reports
// whether it did: for whoever races with the last release.
func (b Buffer) TryRetain() bool { return b.ref.TryRetain() }

// Data returns the address of the first byte. Memory of kind "device" may not
// be read through it.
func (b Buffer) Data() unsafe.Pointer { return b.live("Data").Data() }

// Address is Data as an integer.
func (b Buffer) Address() uintptr { return b.known("Address").Address }

// Size returns the bytes that may be used, at least those asked for.
func (b Buffer) Size() uint64 { return b.known("Size").Size }

// Requested returns the bytes asked for.
func (b Buffer) Requested() uint64 { return b.known("Requested").Requested }

// Place returns the facts of the memory: context, device, kind. It is valid
// while the buffer is; the caller retains it to keep it longer.
func (b Buffer) Place() *syclobj.Place { return placeOfCell(b.known("Place")) }

// HostReadable reports whether the processor may read the memory.
func (b Buffer) HostReadable() bool {
	return b.known("HostReadable").Flags()&owner.HostReadable != 0
}

// ReadOnly reports whether writing through this buffer is refused.
func (b Buffer) ReadOnly() bool { return b.known("ReadOnly").Flags()&owner.ReadOnly != 0 }

// SetReadOnly marks the memory: writing through any buffer of it is refused.
func (b Buffer) SetReadOnly() { b.live("SetReadOnly").SetFlags(owner.ReadOnly) }

// Exported reports whether the memory left this module's hands.
func (b Buffer) Exported() bool { return b.known("Exported").Flags()&owner.Exported != 0 }

// SetExported notes that the memory leaves this module's hands: when it comes
// back it is reused only behind a barrier on its queue.
func (b Buffer) SetExported() { b.live("SetExported").SetFlags(owner.Exported) }

// Tag returns the tag of the request.
func (b Buffer) Tag() string { return tagName(b.known("Tag").Tag) }

// Resource returns the resource that the memory belongs to, nil for foreign
// memory.
func (b Buffer) Resource() Resource { return resourceOfCell(b.known("Resource")) }

// Bytes returns the memory as a slice, after waiting for pending work. It does
// not copy: the slice is valid while the buffer is. It fails with
// ErrNotHostReadable for device memory.
func (b Buffer) Bytes() ([]byte, error) {
	const op = "Buffer.Bytes"
	if err := b.awake(op); err != nil {
		return nil, err
	}
	c := b.live("Bytes")
	if c.Flags()&owner.HostReadable == 0 {
		return nil, accessError(op, c, ErrNotHostReadable, nil)
	}
	if c.Size == owner.UnknownSize {
		return nil, accessError(op, c, ErrRange, errUnknownSize)
	}
	if err := b.Wait(); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(c.Data()), c.Size), nil
}

// stale makes the panic's value: what is known of the memory that was.
func (b Buffer) stale(op string) *UseError {
	op = "Buffer." + op
	c := b.ref.Cell()
	if c == nil {
		return misuse(op, "the zero Buffer has no memory")
	}
	if !b.ref.Gone() { // or has woken up meanwhile
		return misuse(op, "%w; Pool.Wake brings it back", ErrAsleep)
	}
	what := "the last reference was released; Retain one for as long as the memory is used"
	if c.Count() != 0 {
		what += " (its owner serves other memory by now)"
	}
	e := misuse(op, "%s", what)
	former := formerOf(b.ref)
	e.Allocated, e.Released = stackText(former.stack), stackText(former.released)
	if e.Allocated == "" {
		e.Err = fmt.Errorf("%w; memmgr.RecordStacks(16) tells where it was allocated", e.Err)
	}
	return e
}
