package usmarray

import (
	"runtime"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
)

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
