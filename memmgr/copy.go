package memmgr

import (
	"context"
	"errors"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

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
	const op = "CopyIn"
	c, err := b.use(op)
	if err != nil {
		return err
	}
	defer b.Release()
	if c.Flags()&owner.ReadOnly != 0 {
		return accessError(op, c, ErrReadOnly, nil)
	}
	p, err := span(op, c, offset, len(src), unsafe.Sizeof(*new(T)))
	if err != nil || len(src) == 0 {
		return err
	}
	if err := b.Wait(); err != nil {
		return err
	}
	if c.Flags()&owner.HostReadable != 0 {
		copy(unsafe.Slice((*T)(p), len(src)), src)
		return nil
	}
	q, err := placeOfCell(c).Queue()
	if err != nil {
		return accessError(op, c, nil, err)
	}
	return q.Write(p, rawBytes(src))
}

// CopyOut waits for pending work and copies from the buffer to dst, starting at element
// offset of type T. It is the counterpart of [CopyIn].
func CopyOut[T Scalar](b Buffer, offset int, dst []T) error {
	const op = "CopyOut"
	c, err := b.use(op)
	if err != nil {
		return err
	}
	defer b.Release()
	p, err := span(op, c, offset, len(dst), unsafe.Sizeof(*new(T)))
	if err != nil || len(dst) == 0 {
		return err
	}
	if err := b.Wait(); err != nil {
		return err
	}
	if c.Flags()&owner.HostReadable != 0 {
		copy(dst, unsafe.Slice((*T)(p), len(dst)))
		return nil
	}
	q, err := placeOfCell(c).Queue()
	if err != nil {
		return accessError(op, c, nil, err)
	}
	return q.Read(rawBytes(dst), p)
}

// CopyBuffer waits for pending work, copies n bytes between buffers and returns when the
// copy is complete. Offsets are in bytes. Both buffers must be of one context, or one of
// them host-readable.
func CopyBuffer(dst Buffer, dstOffset uint64, src Buffer, srcOffset, n uint64) error {
	const op = "CopyBuffer"
	d, err := dst.use(op)
	if err != nil {
		return err
	}
	defer dst.Release()
	s, err := src.use(op)
	if err != nil {
		return err
	}
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
	return copyOnQueue(op, d, between, to, from, uintptr(n))
}

func copyOnQueue(op string, c *owner.Cell, place *syclobj.Place, to, from unsafe.Pointer, n uintptr) error {
	q, err := place.Queue()
	if err != nil {
		return accessError(op, c, nil, err)
	}
	ev, err := q.Memcpy(to, from, n)
	if err != nil {
		return accessError(op, c, nil, err)
	}
	defer func() { _ = ev.Close() }()
	return ev.Wait(context.Background())
}

// rawBytes returns the memory of a slice of scalars.
func rawBytes[T Scalar](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(T)))
}
