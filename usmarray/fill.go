package usmarray

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// Fill sets every element to a Go number or bool that the type can represent; floating-point values are
// rounded. On device memory the work is left pending (see Wait). Errors: ErrType, ErrReadOnly.
func (a *Array) Fill(v any) error {
	const op = "Fill"
	a.hold(op)
	defer a.buf.Release()
	c, e, err := a.toWrite(op, v)
	if err != nil {
		return err
	}
	if a.Size() == 0 {
		return nil
	}
	if err := a.buf.Wait(); err != nil {
		return wrapErr(op, nil, err)
	}
	var raw [16]byte
	c.encode(raw[:a.dtype.Size()], 0, e)
	return a.fillRaw(op, &c, raw)
}

// fillRaw writes an element's bytes (one byte for sub-byte types) to every element of a non-empty array,
// after pending work.
func (a *Array) fillRaw(op string, c *codec, raw [16]byte) error {
	if a.elemBits()%8 != 0 {
		return a.fillPacked(op, c, uint64(raw[0]))
	}
	n := a.dtype.Size()
	if a.buf.HostReadable() {
		fillStrided(a.base(), &a.layout, unsafe.Pointer(&raw[0]), n)
		return nil
	}
	return a.fillDevice(op, raw[:n])
}

// fillFrom fills with the single element of src, converted as in any conversion.
func (a *Array) fillFrom(op string, src *Array) error {
	var raw, in [16]byte
	c, from := newCodec(a.dtype), newCodec(src.dtype)
	off, n, shift := src.elementBytes(src.layout.offset)
	if err := src.readBytes(op, in[:n], off); err != nil {
		return err
	}
	if src.dtype.Bits < 8 {
		in[0] = byte(from.loadBits(in[:n], shift))
	}
	if a.dtype == src.dtype {
		raw = in
	} else {
		converter(a.dtype, src.dtype, 1)(unsafe.Pointer(&raw[0]), unsafe.Pointer(&in[0]), 1, a.dtype.Size(), src.dtype.Size())
	}
	return a.fillRaw(op, &c, raw)
}

// fillZero clears a new array, which is contiguous.
func (a *Array) fillZero() error {
	n := a.NBytes()
	if n == 0 {
		return nil
	}
	// Work of the memory's former user may still be running (WithQueue).
	if err := a.buf.Wait(); err != nil {
		return wrapErr("Zeros", nil, err)
	}
	if a.buf.HostReadable() {
		clear(unsafe.Slice((*byte)(a.base()), n))
		return nil
	}
	q, err := a.copyQueue("Zeros")
	if err != nil {
		return err
	}
	ev, err := q.Memset(a.base(), 0, uintptr(n))
	return a.left("Zeros", q, ev, err)
}

// left records the last submission on an array's memory as pending, or waits for it if the memory is observed.
func (a *Array) left(op string, q *syclobj.Queue, ev *syclobj.Event, err error) error {
	if err != nil {
		return wrapErr(op, nil, err)
	}
	defer ev.Close()
	if err := a.buf.SetPending(q, ev); err != nil {
		return wrapErr(op, nil, err)
	}
	return settle(op, ev, a.buf)
}

// fillDevice fills device memory with one submission per run, or through staging memory if there would be
// many.
func (a *Array) fillDevice(op string, raw []byte) error {
	q, err := a.copyQueue(op)
	if err != nil {
		return err
	}
	w := planWalk(&a.layout, &a.layout)
	n, step, _ := w.row()
	rows := 1
	for _, x := range w.axes {
		rows *= x.n
	}
	misaligned := uintptr(a.base())%uintptr(len(raw)) != 0
	if step > 1 || rows > 256 || misaligned {
		return a.fillStaged(op, raw)
	}
	if step == 0 {
		n = 1
	}
	return w.each(func(p, _ int) error {
		ev, err := q.Fill(unsafe.Add(a.base(), p*len(raw)), raw, uintptr(n))
		return a.left(op, q, ev, err)
	})
}

func (a *Array) fillStaged(op string, raw []byte) error {
	e := a.end()
	s, err := stage(op, &e, true)
	if err != nil {
		return err
	}
	defer s.free()
	fillStrided(s.base, &s.layout, unsafe.Pointer(unsafe.SliceData(raw)), len(raw))
	return s.writeBack(op, &e)
}

// fillPacked fills an array of packed elements with the bits of one element.
func (a *Array) fillPacked(op string, c *codec, bits uint64) error {
	to, err := spanOf(op, a, &a.layout, true)
	if err != nil {
		return err
	}
	w := planWalk(&a.layout, &a.layout)
	err = w.each(func(p, _ int) error {
		raw, shift := to.bitsAt(p)
		c.storeBits(raw, shift, bits)
		return nil
	})
	if err != nil {
		return err
	}
	return to.store(op)
}
