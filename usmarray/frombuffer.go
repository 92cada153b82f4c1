package usmarray

import (
	"runtime"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
)

// FromBuffer returns an array of a part of a buffer and takes over one reference of it. On error the
// reference is still the caller's. The layout's offset and strides count elements from the start of the
// buffer. Errors: ErrLayout if an element would lie outside the buffer, ErrType for a type with lanes.
func FromBuffer(buf memmgr.Buffer, dt DataType, l Layout, opts ...Option) (*Array, error) {
	return fromBuffer("FromBuffer", buf, dt, l, options{}.with(opts))
}

func fromBuffer(op string, buf memmgr.Buffer, dt DataType, l Layout, o options) (*Array, error) {
	a, err := wrapBuffer(op, buf, dt, l, o)
	if err == nil {
		a.flags |= flagOwner
		a.watch()
	}
	return a, err
}

// WrapBuffer is FromBuffer without taking a reference: the array borrows and is valid while the buffer has
// another owner.
func WrapBuffer(buf memmgr.Buffer, dt DataType, l Layout, opts ...Option) (*Array, error) {
	return wrapBuffer("WrapBuffer", buf, dt, l, options{}.with(opts))
}

func wrapBuffer(op string, buf memmgr.Buffer, dt DataType, l Layout, o options) (*Array, error) {
	if classOf(dt) == classOther {
		return nil, opErr(op, ErrType, "an array cannot hold %s; see dlpack.DataTypes", dt)
	}
	if err := o.checkMemoryGiven(op); err != nil {
		return nil, err
	}
	if err := l.check(); err != nil {
		return nil, opErr(op, ErrLayout, "%w", err)
	}
	lo, hi := l.bounds()
	bytes, ok := ceilBytes(max(hi, 0), dt.StorageBits(o.padded))
	if size := buf.Size(); lo < 0 || !ok || size != memmgr.UnknownSize && uint64(bytes) > size {
		return nil, opErr(op, ErrLayout, "the layout needs %s elements from %d up to %d, and the buffer has %d bytes", dt, lo, hi, size)
	}
	a := newArray(buf, buf.Place(), dt, len(l.shape), o.flags(dt))
	copy(a.layout.shape, l.shape)
	copy(a.layout.strides, l.strides)
	a.layout.offset = l.offset
	return a, nil
}

// FromPinnedSlice returns an array of a Go slice's own memory, without a copy: the array and the slice see
// each other's writes. It is plain host memory in C order. A nil shape means one axis, an empty one a
// scalar. Elements of sub-byte types are padded, as in the slice; ReadOnly makes the array refuse
// writes. [FromSlice] copies instead.
//
// The caller owns the array and calls Release. The slice's memory is pinned, so that C may keep its
// address, until the last reference is dropped: of this array, of retained views, and of exported DLPack
// tensors, whose deleters may run on any thread and never enter Go. If Go's Release drops the last
// reference, the pin ends before it returns; if C drops it, a background goroutine ends the pin soon
// after. The caller synchronizes concurrent reads and writes of the elements, as for any slice.
//
// Errors: ErrLayout if the shape does not have exactly len(data) elements, memmgr.ErrOutOfMemory if the
// references cannot be counted. The slice is not pinned then.
func FromPinnedSlice[T dlpack.Element](data []T, shape []int, opts ...Option) (*Array, error) {
	const op = "FromPinnedSlice"
	if shape == nil {
		shape = []int{len(data)}
	}
	l, err := NewLayout(shape, nil, 0)
	if err != nil {
		return nil, opErr(op, ErrLayout, "%w", err)
	}
	if l.Size() != len(data) {
		return nil, opErr(op, ErrLayout, "shape %s has %d elements and the slice %d; pass a shape with that number of elements",
			tuple(shape), l.Size(), len(data))
	}
	var zero T
	var p unsafe.Pointer
	var pin runtime.Pinner
	if len(data) > 0 {
		p = unsafe.Pointer(unsafe.SliceData(data))
		pin.Pin(p)
	}
	buf, err := memmgr.FromForeign(p, uint64(len(data))*uint64(unsafe.Sizeof(zero)), memmgr.ForeignOptions{Release: pin.Unpin})
	if err != nil {
		pin.Unpin()
		return nil, wrapErr(op, nil, err)
	}
	a, err := fromBuffer(op, buf, dlpack.DataTypeOf[T](), l, options{}.with(opts))
	if err != nil {
		buf.Release()
		return nil, err
	}
	return a, nil
}
