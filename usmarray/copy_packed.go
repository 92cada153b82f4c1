package usmarray

import (
	"context"
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// left records the last submission on an array's memory as pending.
func (a *Array) left(op string, q *syclobj.Queue, ev *syclobj.Event, err error) error {
	if err != nil {
		return wrapErr(op, nil, err)
	}
	defer ev.Close()
	if err := a.buf.SetPending(q, ev); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}

// fillDevice fills device memory: one submission per run, or, when there would
// be many, through staging memory.
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

// bitEnd is one side of an element-by-element conversion: bytes on the host
// that hold the span of the elements.
type bitEnd struct {
	bytes  []byte
	first  int // byte of the buffer that bytes begins with
	bits   int
	layout *Layout
	arr    *Array
}

// bitsOf makes the bytes of an array's span reachable.
func bitsOf(op string, a *Array, l *Layout) (*bitEnd, error) {
	lo, hi := l.Span()
	b := &bitEnd{bits: a.elemBits(), layout: l, arr: a}
	b.first = lo * b.bits / 8
	n := (hi*b.bits+7)/8 - b.first
	if a.buf.HostReadable() {
		b.bytes = unsafe.Slice((*byte)(unsafe.Add(a.base(), b.first)), n)
		return b, nil
	}
	b.bytes = make([]byte, n)
	return b, a.readBytes(op, b.bytes, b.first)
}

// store writes what was changed back to device memory.
func (b *bitEnd) store(op string) error {
	if b.arr.buf.HostReadable() {
		return nil
	}
	return b.arr.writeBytes(op, b.bytes, b.first)
}

func (b *bitEnd) at(position int) (raw []byte, shift int) {
	first := position * b.bits
	i := first/8 - b.first
	return b.bytes[i : i+(first%8+b.bits+7)/8], first % 8
}

// shares reports whether two spans of bytes are partly the same memory. Two
// buffers can be, since memory comes back in through an exchange.
func (b *bitEnd) shares(c *bitEnd) bool {
	p, q := uintptr(unsafe.Pointer(unsafe.SliceData(b.bytes))), uintptr(unsafe.Pointer(unsafe.SliceData(c.bytes)))
	return p < q+uintptr(len(c.bytes)) && q < p+uintptr(len(b.bytes))
}

// convertElements writes every element of src, whose layout is from, into dst,
// converting between types and between packed and padded storage.
func convertElements(op string, dst, src *Array, from *Layout) error {
	to, err := bitsOf(op, dst, &dst.layout)
	if err != nil {
		return err
	}
	in, err := bitsOf(op, src, from)
	if err != nil {
		return err
	}
	if to.shares(in) { // the host sees one memory through both: read first
		in.bytes = append([]byte(nil), in.bytes...)
	}
	cd, cs := newCodec(dst.dtype), newCodec(src.dtype)
	w := planWalk(&dst.layout, from)
	err = w.each(func(pd, ps int) error {
		raw, shift := in.at(ps)
		e := cs.decode(raw, shift)
		if cd.dt != cs.dt {
			e = cast(e, &cs, &cd)
		}
		raw, shift = to.at(pd)
		cd.encode(raw, shift, e)
		return nil
	})
	if err != nil {
		return err
	}
	return to.store(op)
}

// fillPacked fills an array of packed elements of less than a byte.
func (a *Array) fillPacked(op string, c *codec, e element) error {
	to, err := bitsOf(op, a, &a.layout)
	if err != nil {
		return err
	}
	w := planWalk(&a.layout, &a.layout)
	err = w.each(func(p, _ int) error {
		raw, shift := to.at(p)
		c.encode(raw, shift, e)
		return nil
	})
	if err != nil {
		return err
	}
	return to.store(op)
}

// Synchronize blocks until the work that this library submitted on the memory
// is complete, and everything submitted to the memory's own queue: what a
// consumer that waits (the xpu contract) calls before it reads. Work that
// others submitted to queues of theirs is theirs to wait for.
func (a *Array) Synchronize(ctx context.Context) error {
	const op = "Synchronize"
	a.hold(op)
	defer a.buf.Release()
	if err := a.buf.WaitContext(ctx); err != nil {
		return wrapErr(op, nil, err)
	}
	if a.place.IsHost() {
		return ctx.Err()
	}
	q, err := a.copyQueue(op)
	if err != nil {
		return err
	}
	if err := q.Wait(ctx); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}
