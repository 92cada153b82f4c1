package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Content is the elements of an array as a file stores them: in C order, or in Fortran order if the array
// has that order and the format supports it. It is divided into pieces.
type Content struct {
	a       *usmarray.Array
	bytes   int64
	swap    int
	dense   bool // the pieces are ranges of the array's memory
	fortran bool

	// If dense is not set, a piece is a box of elements: one index of each axis before axis, up to step
	// indices of axis, and all indices of the axes after it.
	axis, step int
	inner      int64 // elements for one index of axis
	count      int64 // number of pieces
}

// NewContent describes the elements of an array, which is borrowed. fortran: the format supports Fortran
// order. swap is as in Elements.
func NewContent(a *usmarray.Array, fortran bool, swap int) (*Content, error) {
	c := &Content{a: a, swap: swap}
	size, err := a.DataType().ByteSize(int64(a.Size()), false)
	if err != nil {
		return nil, err
	}
	c.bytes = size
	switch {
	case size == 0:
		c.dense = true
	case dense(a, false):
		c.dense = true
	case fortran && dense(a, true):
		c.dense, c.fortran = true, true
	}
	if c.dense {
		c.count = (size + PieceBytes - 1) / PieceBytes
		return c, nil
	}
	return c, c.cut()
}

// cut chooses the boxes of the array so that each box is one contiguous range of the file.
func (c *Content) cut() error {
	shape, bits := c.a.Shape(), int64(c.a.DataType().BitSize())
	c.inner = int64(c.a.Size())
	c.step, c.count = 1, 1
	for axis, d := range shape {
		c.axis = axis
		c.inner /= int64(d)
		if c.step = int(PieceBytes * 8 / bits / c.inner); c.step > 0 {
			break
		}
		c.count *= int64(d)
	}
	if len(shape) == 0 {
		return nil
	}
	d := shape[c.axis]
	if c.step = min(max(c.step, 1), d); bits%8 != 0 && c.step < d {
		c.step = c.step / 8 * 8
	}
	if c.step == 0 || bits%8 != 0 && c.axis > 0 && int64(d)*c.inner*bits%8 != 0 {
		return fmt.Errorf("%w: packed %s elements of shape %v with strides %v cannot be divided into pieces of whole bytes; write a Copy, which is in C order",
			usmarray.ErrLayout, c.a.DataType(), shape, c.a.Strides())
	}
	c.count *= int64((d + c.step - 1) / c.step)
	return nil
}

// Bytes returns the size of the content in bytes.
func (c *Content) Bytes() int64 { return c.bytes }

// Fortran reports whether the elements are written in Fortran order.
func (c *Content) Fortran() bool { return c.fortran }

// direct reports whether pieces are written from the array's own memory.
func (c *Content) direct() bool { return c.dense && c.swap == 0 && c.a.Buffer().HostReadable() }

// piece returns the bytes of piece i and their offset in the content. If direct reports false, it uses the
// memory of s.
func (c *Content) piece(ctx context.Context, i int64, g *ring, s *slot) (b []byte, at int64, err error) {
	if !c.dense {
		return c.box(i, s)
	}
	at = i * PieceBytes
	n := min(c.bytes-at, PieceBytes)
	from := unsafe.Add(c.a.Pointer(), at)
	if !c.a.Buffer().HostReadable() {
		if err := g.download(ctx, s, c.a.Buffer(), from, uintptr(n)); err != nil {
			return nil, 0, err
		}
		b = s.bytes[:n]
	} else if b = unsafe.Slice((*byte)(from), n); c.swap != 0 {
		copy(s.bytes, b)
		b = s.bytes[:n]
	}
	swapBytes(b, c.swap)
	return b, at, nil
}

// box copies the elements of box i to s in C order. It returns their bytes and their offset in the content.
func (c *Content) box(i int64, s *slot) ([]byte, int64, error) {
	shape := c.a.Shape()
	index := make([]usmarray.Index, c.axis+1)
	if len(shape) == 0 {
		index = nil
	}
	first, size := int64(0), c.inner
	if index != nil {
		along := int64((shape[c.axis] + c.step - 1) / c.step)
		lo := int(i%along) * c.step
		hi := min(lo+c.step, shape[c.axis])
		index[c.axis] = usmarray.IndexRange(lo, hi)
		first, size = int64(lo)*c.inner, int64(hi-lo)*c.inner
		i /= along
		for k, block := c.axis-1, int64(shape[c.axis])*c.inner; k >= 0; k-- {
			at := i % int64(shape[k])
			i /= int64(shape[k])
			index[k] = usmarray.IndexAt(int(at))
			first += at * block
			block *= int64(shape[k])
		}
	}
	view, err := c.a.Index(index...)
	if err != nil {
		return nil, 0, err
	}
	defer view.Release()
	l, err := usmarray.NewLayout(view.Shape(), nil, 0)
	if err != nil {
		return nil, 0, err
	}
	to, err := usmarray.WrapBuffer(s.buf, view.DataType(), l)
	if err != nil {
		return nil, 0, err
	}
	defer to.Release()
	if err := to.CopyFrom(view); err != nil {
		return nil, 0, err
	}
	bits := int64(view.DataType().BitSize())
	b := s.bytes[:(size*bits+7)/8]
	swapBytes(b, c.swap)
	return b, first * bits / 8, nil
}

// begin waits for pending work on the array. It returns a ring with up to n slots, or nil if none is needed.
func (c *Content) begin(ctx context.Context, n int) (*ring, error) {
	if err := c.a.Buffer().WaitContext(ctx); err != nil {
		return nil, err
	}
	if c.direct() || c.count == 0 {
		return nil, nil
	}
	return newRing(ctx, c.a.Place(), n)
}

// end releases a ring, which may be nil. Copies in flight become pending work of the buffers.
func end(g *ring) {
	if g != nil {
		g.abandon()
		g.release()
	}
}

// WriteAt writes the content to w from position base on, with several goroutines (see [Workers]).
func (c *Content) WriteAt(ctx context.Context, w io.WriterAt, base int64, workers int) error {
	held := c.a.Retain()
	defer held.Release()
	n := int(min(int64(Workers(workers)), max(c.count, 1)))
	g, err := c.begin(ctx, n)
	if err != nil {
		return err
	}
	defer end(g)
	if g != nil {
		n = min(n, len(g.slots)) // each goroutine keeps one slot
	}
	var next atomic.Int64
	return together(ctx, n, func(ctx context.Context) error {
		s := &slot{}
		if g != nil {
			var err error
			if s, err = g.take(ctx); err != nil {
				return err
			}
		}
		for {
			i := next.Add(1) - 1
			if err := operr.Ended(ctx); err != nil || i >= c.count {
				return err
			}
			b, at, err := c.piece(ctx, i, g, s)
			if err != nil {
				return err
			}
			if err := writeAt(w, b, base+at); err != nil {
				return err
			}
		}
	})
}

// WriteTo writes the content to a stream.
func (c *Content) WriteTo(ctx context.Context, w io.Writer) error {
	held := c.a.Retain()
	defer held.Release()
	g, err := c.begin(ctx, 1)
	if err != nil {
		return err
	}
	defer end(g)
	s := &slot{}
	if g != nil {
		if s, err = g.take(ctx); err != nil {
			return err
		}
	}
	for i := range c.count {
		if err := operr.Ended(ctx); err != nil {
			return err
		}
		b, _, err := c.piece(ctx, i, g, s)
		if err != nil {
			return err
		}
		if err := Write(w, b); err != nil {
			return err
		}
	}
	return operr.Ended(ctx)
}

// writeAt writes all of b. If the kernel cannot access the memory, it writes a copy (see reader.read).
func writeAt(w io.WriterAt, b []byte, at int64) error {
	n, err := w.WriteAt(b, at)
	if errors.Is(err, errFault) {
		n, err = w.WriteAt(slices.Clone(b), at)
	}
	return written(n, len(b), err)
}

// Write writes all of b to a stream. If the kernel cannot access the memory, it writes a copy.
func Write(w io.Writer, b []byte) error {
	n, err := w.Write(b)
	if errors.Is(err, errFault) && n == 0 {
		n, err = w.Write(slices.Clone(b))
	}
	return written(n, len(b), err)
}

func written(n, want int, err error) error {
	if err == nil && n != want {
		return fmt.Errorf("%w: %d bytes of %d", io.ErrShortWrite, n, want)
	}
	return err
}
