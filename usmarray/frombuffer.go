package usmarray

import (
	"github.com/usmbridge/usmbridge/memmgr"
)

// FromBuffer makes an array of a part of a buffer and takes over one reference
// of it; on error the reference is still the caller's. The layout's offset and
// strides count elements from the start of the buffer. Errors: ErrLayout when an
// element would lie outside the buffer, ErrType for a type with lanes.
func FromBuffer(buf memmgr.Buffer, dt DataType, l Layout, opts ...BufferOption) (*Array, error) {
	a, err := WrapBuffer(buf, dt, l, opts...)
	if err == nil {
		a.flags |= flagOwner
		a.watch()
	}
	return a, err
}

// WrapBuffer is FromBuffer that borrows: the array is valid while the buffer
// has another owner.
func WrapBuffer(buf memmgr.Buffer, dt DataType, l Layout, opts ...BufferOption) (*Array, error) {
	const op = "FromBuffer"
	if classOf(dt) == classOther {
		return nil, opErr(op, ErrType, "an array cannot hold %s; see dlpack.DataTypes", dt)
	}
	var flags arrayFlags
	for _, f := range opts {
		flags |= f.flag
	}
	if !dt.IsSubByte() {
		flags &^= flagPadded
	}
	if err := l.check(); err != nil {
		return nil, opErr(op, ErrLayout, "%w", err)
	}
	lo, hi := l.Span()
	bytes, ok := ceilBytes(max(hi, 0), dt.StorageBits(flags&flagPadded != 0))
	if size := buf.Size(); lo < 0 || !ok || size != memmgr.UnknownSize && uint64(bytes) > size {
		return nil, opErr(op, ErrLayout, "the layout needs %s elements from %d up to %d, and the buffer has %d bytes", dt, lo, hi, size)
	}
	a := newArray(buf, buf.Place(), dt, len(l.shape), flags)
	copy(a.layout.shape, l.shape)
	copy(a.layout.strides, l.strides)
	a.layout.offset = l.offset
	return a, nil
}

// BufferOption changes what FromBuffer and WrapBuffer make.
type BufferOption struct{ flag arrayFlags }

// BufferReadOnly refuses writes through the array.
func BufferReadOnly() BufferOption { return BufferOption{flagReadOnly} }

// BufferPadded says that elements of sub-byte types take a byte each.
func BufferPadded() BufferOption { return BufferOption{flagPadded} }
