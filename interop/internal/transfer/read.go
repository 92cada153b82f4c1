package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Options configures reads into new memory.
type Options struct {
	Workers int            // number of goroutines; see [Workers]
	Queue   *syclobj.Queue // the first user of the memory
	Tag     string         // the tag of the memory in reports
}

// Wish describes an array to be read: rows of elements.
type Wish struct {
	Elements *Elements
	Rows     Rows
}

// ReadNew allocates an array for each wish and reads its elements. On an error it returns no array. If the
// context can end, the first allocation waits for memory until then. Later allocations do not wait,
// because they could wait for memory that this call holds. If one of them fails for lack of memory, the
// call releases all arrays and returns memmgr.ErrOutOfMemory.
func ReadNew(ctx context.Context, src *Source, wishes []Wish, r memmgr.Resource, o Options) ([]*usmarray.Array, error) {
	if r == nil {
		return nil, fmt.Errorf("%w: the resource is nil; pass memmgr.Host() for host memory, or the pool of memmgr.Default for USM", memmgr.ErrRequest)
	}
	parts, shapes := make([]Part, len(wishes)), make([][]int, len(wishes))
	var err error
	for i, w := range wishes {
		if shapes[i], err = w.Elements.shape(w.Rows); err != nil {
			return nil, err
		}
		if parts[i], err = w.Elements.part(w.Rows); err != nil {
			return nil, err
		}
	}
	if err := operr.Ended(ctx); err != nil {
		return nil, err
	}
	arrays, held, done := make([]*usmarray.Array, 0, len(wishes)), int64(0), false
	defer func() {
		if !done { // also if the reader panics
			for _, a := range arrays {
				a.Release()
			}
		}
	}()
	for i, w := range wishes {
		wait := ctx
		if held > 0 {
			wait = context.Background()
		}
		a, err := allocate(wait, r, w.Elements, shapes[i], o)
		if err != nil {
			return nil, err
		}
		arrays = append(arrays, a)
		held += parts[i].bytes()
		parts[i].Buffer, parts[i].To = a.Buffer(), a.Pointer()
	}
	if err := Read(ctx, src, parts, o.Workers); err != nil {
		return nil, err
	}
	done = true
	return arrays, nil
}

// allocate returns a new array for the elements, in their order.
func allocate(ctx context.Context, r memmgr.Resource, e *Elements, shape []int, o Options) (*usmarray.Array, error) {
	l, err := usmarray.NewLayout(shape, nil, 0)
	if err != nil {
		return nil, err
	}
	if e.Fortran {
		strides, step := make([]int, len(shape)), 1
		for i, d := range shape {
			strides[i] = step
			step *= max(d, 1)
		}
		if l, err = usmarray.NewLayout(shape, strides, 0); err != nil {
			return nil, err
		}
	}
	size, err := e.DataType.ByteSize(int64(l.Size()), false)
	if err != nil {
		return nil, err
	}
	buf, err := memmgr.New(r, memmgr.Request{Size: uintptr(size), Queue: o.Queue, Tag: o.Tag, Context: ending(ctx)})
	if err != nil {
		return nil, &usmarray.OpError{Op: "New", Err: err} // as usmarray.New reports it
	}
	a, err := usmarray.FromBuffer(buf, e.DataType, l)
	if err != nil {
		buf.Release()
	}
	return a, err
}

// ending returns ctx if it can end, else nil. An allocation with a context that cannot end would wait
// forever for memory.
func ending(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return nil
	}
	return ctx
}

// ReadInto reads rows into an array of the same type and shape, whose elements are contiguous in the order
// of the file. After an error the array's contents are undefined. If packed elements end within a byte,
// the other elements in that byte are kept; they must not be written during the call.
func ReadInto(ctx context.Context, src *Source, w Wish, a *usmarray.Array, workers int) error {
	e := w.Elements
	shape, err := e.shape(w.Rows)
	if err != nil {
		return err
	}
	p, err := e.part(w.Rows)
	if err != nil {
		return err
	}
	held := a.Retain()
	defer held.Release()
	switch {
	case a.DataType() != e.DataType:
		return fmt.Errorf("%w: the array has element type %s, the file has %s; read into a new array and convert it", usmarray.ErrType, a.DataType(), e.DataType)
	case !slices.Equal(a.Shape(), shape):
		return fmt.Errorf("%w: the array has shape %v, the elements to read have shape %v", usmarray.ErrLayout, a.Shape(), shape)
	case a.ReadOnly():
		return fmt.Errorf("%w: the array is read-only", usmarray.ErrReadOnly)
	case !dense(a, e.Fortran):
		order := "C"
		if e.Fortran {
			order = "Fortran"
		}
		return fmt.Errorf("%w: the array's elements must be contiguous in %s order, as in the file; sub-byte elements must be packed and begin at a byte",
			usmarray.ErrLayout, order)
	}
	p.Buffer, p.To = a.Buffer(), a.Pointer()
	bits := int64(a.Size()) * int64(e.DataType.BitSize()) % 8
	if bits == 0 || p.Run == 0 {
		return Read(ctx, src, []Part{p}, workers)
	}
	p.Run-- // packed elements lie in one run
	if err := Read(ctx, src, []Part{p}, workers); err != nil {
		return err
	}
	return readBits(ctx, src, &p, byte(1)<<bits-1)
}

// readBits reads the byte after a part, and copies the bits in mask to the byte in memory.
func readBits(ctx context.Context, src *Source, p *Part, mask byte) error {
	b := make([]byte, 1)
	if err := src.ReadFull(b, p.From+p.Run); err != nil {
		return err
	}
	if err := p.Buffer.WaitContext(ctx); err != nil {
		return err
	}
	to := unsafe.Add(p.To, p.Run)
	if p.Buffer.HostReadable() {
		at := (*byte)(to)
		*at = *at&^mask | b[0]&mask
		return nil
	}
	g, err := newRing(ctx, p.Buffer.Place(), 1)
	if err != nil {
		return err
	}
	defer end(g)
	s, err := g.take(ctx)
	if err != nil {
		return err
	}
	if err := g.download(ctx, s, p.Buffer, to, 1); err != nil {
		return err
	}
	s.bytes[0] = s.bytes[0]&^mask | b[0]&mask
	if err := g.upload(s, p.Buffer, to, 1); err != nil {
		return err
	}
	return g.wait(ctx)
}

// dense reports whether the elements have the same layout in memory as in a file.
func dense(a *usmarray.Array, fortran bool) bool {
	if fortran && !a.IsF() || !fortran && !a.IsC() {
		return false
	}
	return !a.DataType().IsSubByte() || !a.Padded() && a.Layout().Offset()*a.DataType().BitSize()%8 == 0
}

// Read fills the parts, whose memory must have the same place. It waits for pending work on the memory
// first. After an error or the end of the context, the call does not access the memory any more, except for
// copies on a device that were submitted already. These are pending work of the buffers.
func Read(ctx context.Context, src *Source, parts []Part, workers int) error {
	parts = slices.DeleteFunc(parts, func(p Part) bool { return p.bytes() == 0 })
	if err := operr.Ended(ctx); err != nil || len(parts) == 0 {
		return err
	}
	for i := range parts {
		if err := parts[i].Buffer.WaitContext(ctx); err != nil {
			return err
		}
	}
	n := int(min(int64(Workers(workers)), pieces(parts)))
	c := &cursor{parts: parts}
	if parts[0].Buffer.HostReadable() {
		return together(ctx, n, func(ctx context.Context) error { return readHost(ctx, src, c) })
	}
	g, err := newRing(ctx, parts[0].Buffer.Place(), min(6*n, ringSlots))
	if err != nil {
		return err
	}
	failed := true // also if the reader panics
	defer func() {
		if failed {
			g.abandon()
		}
		g.release()
	}()
	if err := together(ctx, n, func(ctx context.Context) error { return readDevice(ctx, src, c, g) }); err != nil {
		return err
	}
	if err := g.wait(ctx); err != nil {
		return err
	}
	failed = false
	return nil
}

// readHost reads pieces into host memory, on one goroutine.
func readHost(ctx context.Context, src *Source, c *cursor) error {
	r := reader{src: src}
	for {
		if err := operr.Ended(ctx); err != nil {
			return err
		}
		p, ok := c.next()
		if !ok {
			return nil
		}
		if err := r.fill(ctx, unsafe.Slice((*byte)(p.to()), p.n), &p); err != nil {
			return err
		}
	}
}

// readDevice reads pieces into slots of the ring and uploads them, on one goroutine.
func readDevice(ctx context.Context, src *Source, c *cursor, g *ring) error {
	r := reader{src: src}
	for {
		s, err := g.take(ctx)
		if err != nil {
			return err
		}
		p, ok := c.next()
		if !ok {
			g.give(s)
			return nil
		}
		if err := r.fill(ctx, s.bytes[:p.n], &p); err != nil {
			return err
		}
		if err := g.upload(s, p.part.Buffer, p.to(), uintptr(p.n)); err != nil {
			return err
		}
		g.give(s)
	}
}

// Runs of less than runBytes with gaps of less than gapBytes are read together with the gaps, because a
// system call for each run costs more.
const (
	runBytes     = 16 << 10
	gapBytes     = 64 << 10
	scratchBytes = 256 << 10
)

// reader reads pieces. It is used by one goroutine.
type reader struct {
	src     *Source
	scratch []byte // allocated at the first use
}

// fill reads a piece to dst, in native byte order.
func (r *reader) fill(ctx context.Context, dst []byte, p *piece) error {
	err := error(nil)
	switch gap := p.part.Stride - p.part.Run; {
	case p.runs == 1:
		err = r.read(dst, p.from())
	case gap == 0:
		err = r.read(dst, p.from())
	case p.part.Run < runBytes && gap < gapBytes:
		err = r.pick(ctx, dst, p)
	default:
		err = r.each(ctx, dst, p)
	}
	if err == nil {
		swapBytes(dst, p.part.Swap)
	}
	return err
}

// each reads one run at a time.
func (r *reader) each(ctx context.Context, dst []byte, p *piece) error {
	at := p.from()
	for i := int64(0); len(dst) > 0; i++ {
		if i%64 == 0 && ctx.Err() != nil {
			return operr.Ended(ctx)
		}
		if err := r.read(dst[:p.part.Run], at); err != nil {
			return err
		}
		dst, at = dst[p.part.Run:], at+p.part.Stride
	}
	return nil
}

// pick reads runs together with the gaps between them, and copies the runs to dst.
func (r *reader) pick(ctx context.Context, dst []byte, p *piece) error {
	run, stride := p.part.Run, p.part.Stride
	scratch := r.room()
	most := (scratchBytes-run)/stride + 1
	for at := p.from(); len(dst) > 0; {
		if err := operr.Ended(ctx); err != nil {
			return err
		}
		n := min(most, int64(len(dst))/run)
		if err := r.src.ReadFull(scratch[:(n-1)*stride+run], at); err != nil {
			return err
		}
		for i := range n {
			copy(dst[i*run:(i+1)*run], scratch[i*stride:])
		}
		dst, at = dst[n*run:], at+n*stride
	}
	return nil
}

// read reads to dst. The pages of shared USM can be on a device. Some drivers migrate them back at a page
// fault of the process, but a system call fails with EFAULT. In that case read uses Go memory and copies.
func (r *reader) read(dst []byte, at int64) error {
	err := r.src.ReadFull(dst, at)
	if err == nil || !errors.Is(err, errFault) {
		return err
	}
	for scratch := r.room(); len(dst) > 0; {
		b := scratch[:min(len(scratch), len(dst))]
		if err := r.src.ReadFull(b, at); err != nil {
			return err
		}
		copy(dst, b)
		dst, at = dst[len(b):], at+int64(len(b))
	}
	return nil
}

func (r *reader) room() []byte {
	if r.scratch == nil {
		r.scratch = make([]byte, scratchBytes)
	}
	return r.scratch
}
