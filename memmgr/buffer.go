package memmgr

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/account"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Buffer is a handle of reference-counted memory: a plain value of two words. Copying it
// does not add a reference. The zero Buffer refers to no memory: Valid returns false,
// Release does nothing, and the other methods panic. Methods are safe for concurrent use.
//
// Uses after the last Release are detected as long as the owner cell, which later memory reuses, was
// not reused 2^31 times. Do not keep handles of released memory.
type Buffer struct {
	ref owner.Ref // internal/cells reads and writes it
}

// Valid reports whether the memory is alive.
func (b Buffer) Valid() bool { return b.ref.Valid() }

// Count returns the number of references, 0 after the last release.
func (b Buffer) Count() int { return int(b.ref.Count()) }

// live returns the cell of memory that is referenced, or panics.
func (b Buffer) live(op string) *owner.Cell {
	if !b.ref.Valid() {
		panic(b.stale(op))
	}
	return b.ref.Cell()
}

// use adds a reference for an operation on the memory, which the operation ends with Release, so that a
// Release at the same time does not free the memory.
func (b Buffer) use(op string) *owner.Cell {
	if !b.ref.TryRetain() {
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

// TryRetain adds a reference and reports true, unless the last reference was released. It
// is for callers that race with the last release.
func (b Buffer) TryRetain() bool { return b.ref.TryRetain() }

// Data returns the address of the first byte. The host must not access memory of kind
// "device" through it.
func (b Buffer) Data() unsafe.Pointer { return b.live("Data").Data() }

// Address is Data as an integer.
func (b Buffer) Address() uintptr { return b.live("Address").Address }

// Size returns the usable size in bytes, at least Requested.
func (b Buffer) Size() uint64 { return b.live("Size").Size }

// Requested returns the size of the request in bytes.
func (b Buffer) Requested() uint64 { return b.live("Requested").Requested }

// Place returns context, device and kind of the memory. It is valid as long as the buffer;
// the caller retains it to use it longer.
func (b Buffer) Place() *syclobj.Place { return placeOfCell(b.live("Place")) }

// HostReadable reports whether the host may read and write the memory.
func (b Buffer) HostReadable() bool {
	return b.live("HostReadable").Flags()&owner.HostReadable != 0
}

// ReadOnly reports whether writes through this package are refused.
func (b Buffer) ReadOnly() bool { return b.live("ReadOnly").Flags()&owner.ReadOnly != 0 }

// SetReadOnly makes this package refuse writes to the memory through any of its handles.
func (b Buffer) SetReadOnly() { b.live("SetReadOnly").SetFlags(owner.ReadOnly) }

// Exported reports whether SetExported was called, or the memory was exported to a library of CUDA.
func (b Buffer) Exported() bool {
	return b.live("Exported").Flags()&(owner.Exported|owner.CUDA) != 0
}

// SetExported records that code outside of this module gets the memory. After its release
// the memory is reused only behind barriers on its queues (SharedOn) and on the default queues of
// its place that other libraries have seen.
func (b Buffer) SetExported() {
	c := b.live("SetExported")
	c.SetFlags(owner.Exported)
	if c.Flags()&owner.Alias != 0 {
		c.Record().SetFlags(owner.Exported)
	}
}

// Tag returns the tag of the request.
func (b Buffer) Tag() string { return account.TagName(b.live("Tag").Tag) }

// Resource returns the resource that the memory belongs to, nil for foreign
// memory.
func (b Buffer) Resource() Resource {
	r, _ := ownerOf(b.live("Resource"))
	return r
}

// Bytes waits for pending work and returns the memory as a slice. It does not copy: the
// slice is valid as long as the buffer. It fails with an [*OpError] of kind
// ErrNotHostReadable for device memory and ErrRange for memory of unknown size.
func (b Buffer) Bytes() ([]byte, error) {
	const op = "Buffer.Bytes"
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

// stale returns the panic value for an operation on memory that is released.
func (b Buffer) stale(op string) *UseError {
	op = "Buffer." + op
	c := b.ref.Cell()
	if c == nil {
		return misuse(op, "the zero Buffer has no memory")
	}
	problem := "the last reference was released; Retain one for as long as the memory is used"
	if c.Count() != 0 {
		problem += " (its owner cell is used for other memory now)"
	}
	e := misuse(op, "%s", problem)
	former := stacks.Former(b.ref)
	e.Allocated, e.Released = stackText(former.Stack), stackText(former.Released)
	if e.Allocated == "" {
		e.Err = fmt.Errorf("%w; call memmgr.RecordStacks(16) to record where it was allocated", e.Err)
	}
	return e
}

// Scalar is an element type whose bytes mean the same to Go and to a device.
type Scalar interface {
	~bool | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128
}

var errUnknownSize = errors.New("the size of this memory is unknown")

// accessError returns the error of an access that the memory does not allow.
func accessError(op string, c *owner.Cell, kind, err error) error {
	return &OpError{Op: op, Place: placeOfCell(c), Kind: kind, Err: err}
}

func rangeError(op string, c *owner.Cell, offset, length uint64) error {
	return opError(op, ErrRange, "%d bytes from byte %d do not fit in %d bytes", length, int64(offset), c.Size)
}

// span checks that n elements of a width in bytes, starting at element offset, lie inside
// the buffer, and returns their address.
func span(op string, c *owner.Cell, offset, n int, width uintptr) (unsafe.Pointer, error) {
	if offset < 0 {
		return nil, rangeError(op, c, uint64(offset)*uint64(width), uint64(n)*uint64(width))
	}
	first, length := uint64(offset)*uint64(width), uint64(n)*uint64(width)
	if c.Size != owner.UnknownSize && (uint64(offset) > c.Size/uint64(width) || length > c.Size-first) {
		return nil, rangeError(op, c, first, length)
	}
	return unsafe.Add(c.Data(), first), nil
}

// CopyIn waits for pending work and copies src to the buffer, starting at element offset of
// type T. It returns when the copy is complete. It uses the place's queue for memory that
// the host cannot write. Errors are of type [*OpError].
func CopyIn[T Scalar](b Buffer, offset int, src []T) error {
	return copySlice("CopyIn", b, offset, src, true)
}

// CopyOut waits for pending work and copies from the buffer to dst, starting at element
// offset of type T. It is the counterpart of [CopyIn].
func CopyOut[T Scalar](b Buffer, offset int, dst []T) error {
	return copySlice("CopyOut", b, offset, dst, false)
}

// copySlice copies a slice into a buffer or out of it.
func copySlice[T Scalar](op string, b Buffer, offset int, s []T, in bool) error {
	c := b.use(op)
	defer b.Release()
	if in && c.Flags()&owner.ReadOnly != 0 {
		return accessError(op, c, ErrReadOnly, nil)
	}
	width := unsafe.Sizeof(*new(T))
	p, err := span(op, c, offset, len(s), width)
	if err != nil || len(s) == 0 {
		return err
	}
	if err := b.Wait(); err != nil {
		return err
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*width)
	if c.Flags()&owner.HostReadable != 0 {
		memory := unsafe.Slice((*byte)(p), len(raw))
		if in {
			copy(memory, raw)
		} else {
			copy(raw, memory)
		}
		return nil
	}
	q, err := placeOfCell(c).Queue()
	switch {
	case err != nil:
		return accessError(op, c, nil, err)
	case in:
		return q.Write(p, raw)
	}
	return q.Read(raw, p)
}

// CopyBuffer waits for pending work, copies n bytes between buffers and returns when the
// copy is complete. Offsets are in bytes. Both buffers must be of one context, or one of
// them host-readable.
func CopyBuffer(dst Buffer, dstOffset uint64, src Buffer, srcOffset, n uint64) error {
	const op = "CopyBuffer"
	d := dst.use(op)
	defer dst.Release()
	s := src.use(op)
	defer src.Release()
	if d.Flags()&owner.ReadOnly != 0 {
		return accessError(op, d, ErrReadOnly, nil)
	}
	if n > uint64(maxSize) {
		return rangeError(op, d, dstOffset, n)
	}
	to, err := span(op, d, int(dstOffset), int(n), 1)
	if err != nil {
		return err
	}
	from, err := span(op, s, int(srcOffset), int(n), 1)
	if err != nil || n == 0 {
		return err
	}
	if err := src.Wait(); err != nil {
		return err
	}
	if err := dst.Wait(); err != nil {
		return err
	}
	if d.Flags()&s.Flags()&owner.HostReadable != 0 {
		copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(from), n))
		return nil
	}
	between := placeOfCell(d)
	if d.Flags()&owner.HostReadable != 0 {
		between = placeOfCell(s)
	}
	q, err := between.Queue()
	if err != nil {
		return accessError(op, d, nil, err)
	}
	ev, err := q.Memcpy(to, from, uintptr(n))
	if err != nil {
		return accessError(op, d, nil, err)
	}
	defer func() { _ = ev.Close() }()
	return ev.Wait(context.Background())
}
