package usmarray

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/syclobj"
)

// hostAccess waits for pending work and returns an error unless the host can access the elements.
func (a *Array) hostAccess(op string) error {
	if !a.buf.HostReadable() {
		return opErr(op, ErrNotHostReadable, "%v cannot be read by the host; copy it to shared, host or plain memory first (Copy, ToDevice)", a.place)
	}
	if err := a.buf.Wait(); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}

func (a *Array) writable(op string) error {
	if a.readOnly() {
		return opErr(op, ErrReadOnly, "the array is read-only; write to a Copy")
	}
	return nil
}

// Slice returns the elements of a C-contiguous, host-readable array as a Go slice, without a copy, after
// waiting for pending work. Later work does not wait for readers of the slice, nor they for it ([View] makes
// functions of this module wait). The slice borrows: it is valid while an owner of the memory is. Do not write
// to the slice of a read-only array; [View] checks that. Errors: ErrType for another element type,
// ErrLayout, ErrNotHostReadable.
func Slice[T dlpack.Element](a *Array) ([]T, error) {
	const op = "Slice"
	a.hold(op)
	defer a.buf.Release()
	return sliceOf[T](op, a)
}

// sliceOf is Slice for an array whose memory is held.
func sliceOf[T dlpack.Element](op string, a *Array) ([]T, error) {
	if want := dlpack.DataTypeOf[T](); a.dtype != want {
		return nil, opErr(op, ErrType, "the array holds %s, the slice asked for is of %s", a.dtype, want)
	}
	if !a.layout.isC() {
		return nil, opErr(op, ErrLayout, "the elements of shape %s with strides %s do not lie in a row; Copy first", tuple(a.layout.shape), tuple(a.layout.strides))
	}
	if err := a.hostAccess(op); err != nil {
		return nil, err
	}
	var zero T
	p := a.first()
	if uintptr(p)%unsafe.Alignof(zero) != 0 {
		return nil, opErr(op, ErrLayout, "the first element at %p is not aligned to %d bytes; Copy first", p, unsafe.Alignof(zero))
	}
	return unsafe.Slice((*T)(p), a.Size()), nil
}

// View calls fn with the Go slice of the elements, as Slice returns it, and keeps the memory alive during
// the call. Functions of this module that compute on the memory meanwhile return when their work has ended;
// kernels that somebody launches are not waited for. The slice must not be used after fn returns. View refuses a read-only array; use ReadView for
// functions that only read.
func View[T dlpack.Element](a *Array, fn func([]T) error) error {
	const op = "View"
	a.hold(op)
	defer a.buf.Release()
	if err := a.writable(op); err != nil {
		return err
	}
	return viewOf(op, a, fn)
}

// ReadView is View for a function that only reads; it accepts read-only arrays.
func ReadView[T dlpack.Element](a *Array, fn func([]T) error) error {
	const op = "ReadView"
	a.hold(op)
	defer a.buf.Release()
	return viewOf(op, a, fn)
}

// viewOf is View for an array whose memory is held.
func viewOf[T dlpack.Element](op string, a *Array, fn func([]T) error) error {
	cell := cells.Of(a.buf)
	cell.Observe() // first: work that is submitted from now on ends before its submitter returns
	defer cell.Unobserve()
	s, err := sliceOf[T](op, a)
	if err != nil {
		return err
	}
	return fn(s)
}

// elementBytes returns the bytes that hold the element at a position, and the lowest bit of a packed
// sub-byte element in the first of them.
func (a *Array) elementBytes(position int) (offset, n, shift int) {
	bits := a.elemBits()
	first := position * bits
	return first / 8, (first%8 + bits + 7) / 8, first % 8
}

// At returns one element, from any memory, after waiting for pending work. The result has the Go type of
// the element: bool, int8 to uint64, float32, float64, complex64 or complex128. Narrower floating-point
// types become float32, sub-byte integers int8 or uint8. Errors: ErrIndex, ErrLayout.
func (a *Array) At(index ...int) (any, error) {
	const op = "At"
	a.hold(op)
	defer a.buf.Release()
	p, err := a.layout.position(op, index)
	if err != nil {
		return nil, err
	}
	c := newCodec(a.dtype)
	off, n, shift := a.elementBytes(p)
	var raw [16]byte
	if err := a.readBytes(op, raw[:n], off); err != nil {
		return nil, err
	}
	return c.value(c.decode(raw[:n], shift)), nil
}

// toWrite converts a Go value to an element of the array and checks that the array is writable.
func (a *Array) toWrite(op string, v any) (codec, element, error) {
	c := newCodec(a.dtype)
	if err := a.writable(op); err != nil {
		return c, element{}, err
	}
	e, err := c.assign(v)
	if err != nil {
		return c, e, opErr(op, ErrType, "%w", err)
	}
	return c, e, nil
}

// SetAt writes one element, to any memory, after waiting for pending work. The value is a Go number or
// bool that the element type can represent; floating-point values are rounded. Errors: ErrIndex,
// ErrLayout, ErrReadOnly, ErrType.
func (a *Array) SetAt(v any, index ...int) error {
	const op = "SetAt"
	a.hold(op)
	defer a.buf.Release()
	p, err := a.layout.position(op, index)
	if err != nil {
		return err
	}
	c, e, err := a.toWrite(op, v)
	if err != nil {
		return err
	}
	off, n, shift := a.elementBytes(p)
	var raw [16]byte
	if shift != 0 || n*8 != a.elemBits() {
		if err := a.readBytes(op, raw[:n], off); err != nil {
			return err
		}
	}
	c.encode(raw[:n], shift, e)
	return a.writeBytes(op, raw[:n], off)
}

// reach returns the address of a byte of the buffer after pending work, and a queue for copies if the host
// cannot access the memory, else nil.
func (a *Array) reach(op string, offset int) (p unsafe.Pointer, q *syclobj.Queue, err error) {
	if err := a.buf.Wait(); err != nil {
		return nil, nil, wrapErr(op, nil, err)
	}
	if !a.buf.HostReadable() {
		q, err = a.copyQueue(op)
	}
	return unsafe.Add(a.base(), offset), q, err
}

// readBytes copies bytes of the buffer to Go memory, through a queue if the host cannot read them.
func (a *Array) readBytes(op string, dst []byte, offset int) error {
	p, q, err := a.reach(op, offset)
	switch {
	case err != nil:
		return err
	case q == nil:
		copy(dst, unsafe.Slice((*byte)(p), len(dst)))
		return nil
	}
	if err := q.Read(dst, p); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}

// writeBytes is the inverse of readBytes.
func (a *Array) writeBytes(op string, src []byte, offset int) error {
	p, q, err := a.reach(op, offset)
	switch {
	case err != nil:
		return err
	case q == nil:
		copy(unsafe.Slice((*byte)(p), len(src)), src)
		return nil
	}
	if err := q.Write(p, src); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}

// copyQueue returns a queue that can copy the memory.
func (a *Array) copyQueue(op string) (*syclobj.Queue, error) {
	q, err := a.place.Queue()
	if err != nil {
		return nil, wrapErr(op, nil, err)
	}
	return q, nil
}

// Format formats the elements as NumPy's array2string does. The shown part of device memory is copied to
// the host first.
func (a *Array) Format(opts PrintOptions) (string, error) {
	a.hold("Format")
	defer a.buf.Release()
	return a.format(opts)
}

// format is Format for an array whose memory is held.
func (a *Array) format(opts PrintOptions) (string, error) {
	if err := a.buf.Wait(); err != nil {
		return "", wrapErr("Format", nil, err)
	}
	c := newCodec(a.dtype)
	var failed error
	get := a.reader(&failed)
	s := printElements(&a.layout, &c, opts, func(p int) element {
		raw, shift := get(p)
		return c.decode(raw, shift)
	})
	return s, failed
}

// reader returns a function that reads the bytes of an element by its position. Small device memory is
// read as a whole, large memory element by element.
func (a *Array) reader(failed *error) func(position int) (raw []byte, shift int) {
	lo, hi := a.layout.bounds()
	bits := a.elemBits()
	first := lo * bits / 8
	n := (hi*bits+7)/8 - first
	var whole []byte
	switch {
	case a.buf.HostReadable():
		whole = unsafe.Slice((*byte)(unsafe.Add(a.base(), first)), n)
	case n <= 1<<16:
		whole = make([]byte, n)
		*failed = a.readBytes("Format", whole, first)
	}
	return func(p int) ([]byte, int) {
		off, n, shift := a.elementBytes(p)
		if whole != nil {
			return whole[off-first : off-first+n], shift
		}
		raw := make([]byte, n)
		if err := a.readBytes("Format", raw, off); err != nil && *failed == nil {
			*failed = err
		}
		return raw, shift
	}
}
