package usmarray

import (
	"runtime"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
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
	lo, hi := l.bounds()
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

// WrapSlice makes an array of a Go slice's own memory, without a copy: what
// either side writes the other sees. It is plain host memory in C order; a nil
// shape means one axis, an empty one a scalar. Elements of sub-byte types are
// padded, as the slice has them; BufferReadOnly refuses writes through the array.
//
// The caller owns the array and calls Release. The slice's memory is pinned, so
// that C may keep its address, until the last reference is gone: this array's,
// those of retained views, and those of exported DLPack tensors, whose deleters
// may run on any thread and never enter Go. A Go Release that was the last ends
// the pin before it returns; after a last reference dropped in C the goroutine of
// internal/owner ends it soon. Reading and writing the elements at the same time is
// the users' to order, as for any slice.
//
// Errors: ErrLayout when the shape does not hold exactly len(data) elements;
// memmgr.ErrOutOfMemory when there is no room to count the references. The slice
// is not pinned then.
func WrapSlice[T Element](data []T, shape []int, opts ...BufferOption) (*Array, error) {
	const op = "WrapSlice"
	if shape == nil {
		shape = []int{len(data)}
	}
	l, err := NewLayout(shape, nil, 0)
	if err != nil {
		return nil, opErr(op, ErrLayout, "%w", err)
	}
	if l.Size() != len(data) {
		return nil, opErr(op, ErrLayout, "shape %s holds %d elements and the slice has %d; give a shape whose product is their number",
			tuple(shape), l.Size(), len(data))
	}
	var zero T
	dt := dlpack.DataTypeOf[T]()
	if dt.IsSubByte() {
		opts = append([]BufferOption{BufferPadded()}, opts...)
	}
	var p unsafe.Pointer
	var pin runtime.Pinner
	if len(data) > 0 {
		p = unsafe.Pointer(unsafe.SliceData(data))
		pin.Pin(p)
	}
	buf, err := memmgr.Wrap(p, uint64(len(data))*uint64(unsafe.Sizeof(zero)), memmgr.WrapOptions{Release: pin.Unpin})
	if err != nil {
		pin.Unpin()
		return nil, wrapErr(op, nil, err)
	}
	a, err := FromBuffer(buf, dt, l, opts...)
	if err != nil {
		buf.Release()
		return nil, err
	}
	return a, nil
}
