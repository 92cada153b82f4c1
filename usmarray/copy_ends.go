package usmarray

import (
	"context"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// end is one side of a copy: where position 0 lies, and the layout of the
// elements. Elements are whole bytes.
type end struct {
	base   unsafe.Pointer
	layout Layout
	size   int
	kind   endKind
	buf    memmgr.Buffer // of an array
}

type endKind uint8

const (
	endHost   endKind = iota // memory outside the Go heap that the host may touch
	endGo                    // memory of the Go heap: not for queues
	endDevice                // memory that the host must not touch
)

func (a *Array) end() end { return a.endWith(a.layout) }

func (a *Array) endWith(l Layout) end {
	e := end{base: a.base(), layout: l, size: a.elemBits() / 8, buf: a.buf}
	if !a.buf.HostReadable() {
		e.kind = endDevice
	}
	return e
}

func (e *end) at(position int) unsafe.Pointer { return unsafe.Add(e.base, position*e.size) }

// address is at as a number, which may be one past the memory's end.
func (e *end) address(position int) uintptr {
	return uintptr(e.base) + uintptr(position*e.size)
}

// queue is a queue that can copy the memory of a device end.
func (e *end) queue(op string) (*syclobj.Queue, error) {
	q, err := e.buf.Place().Queue()
	if err != nil {
		return nil, wrapErr(op, nil, err)
	}
	return q, nil
}

// The costs that decide how device memory is copied, in nanoseconds: one
// submission, and a byte through a staging copy.
const (
	submitNs  = 3000
	bytesPerN = 4
)

// copyEnds copies between two ends of the same shape, at least one element.
func copyEnds(op string, dst, src end) error {
	if dst.kind != endDevice && src.kind != endDevice {
		return copyHost(dst, src)
	}
	w := planWalk(&dst.layout, &src.layout)
	n, ds, ss := w.row()
	submits := 1
	for _, x := range w.axes {
		submits *= x.n
	}
	run := n
	if ds != 1 || ss != 1 {
		submits, run = submits*n, 1
	}
	if directly(&dst, &src) && (submits <= 64 || submits*submitNs < stagedBytes(&dst, &src)/bytesPerN) {
		return copyRuns(op, &dst, &src, &w, n/run, run, ds, ss)
	}
	return copyStaged(op, dst, src)
}

// directly reports whether one queue can copy from one end to the other.
func directly(dst, src *end) bool {
	if dst.kind == endGo || src.kind == endGo {
		return false
	}
	if dst.kind != endDevice || src.kind != endDevice {
		return true
	}
	a, errA := dst.buf.Place().Context()
	b, errB := src.buf.Place().Context()
	return errA == nil && errB == nil && a.Equal(b)
}

// stagedBytes is how many bytes a staged copy moves through a queue.
func stagedBytes(dst, src *end) int {
	n := 0
	for _, e := range []*end{dst, src} {
		if e.kind == endDevice {
			lo, hi := e.layout.bounds()
			n += (hi - lo) * e.size
		}
	}
	return n
}

// copyHost copies where the host may touch both ends.
func copyHost(dst, src end) error {
	if !overlap(&dst, &src) {
		if dst.layout.isC() && src.layout.isC() { // small arrays would pay more for a plan than for the copy
			n := dst.layout.Size() * dst.size
			copyBytes(unsafe.Slice((*byte)(dst.at(dst.layout.offset)), n), unsafe.Slice((*byte)(src.at(src.layout.offset)), n))
			return nil
		}
		copyStrided(dst.base, src.base, &dst.layout, &src.layout, dst.size)
		return nil
	}
	tmp := make([]byte, dst.layout.Size()*dst.size)
	dense := newDims(len(dst.layout.shape))
	dense.shape = append(dense.shape, dst.layout.shape...)
	dense.strides = dense.strides[:len(dense.shape)]
	fillCStrides(dense.strides, dense.shape)
	p := unsafe.Pointer(unsafe.SliceData(tmp))
	copyStrided(p, src.base, &dense, &src.layout, dst.size)
	copyStrided(dst.base, p, &dst.layout, &dense, dst.size)
	return nil
}

// overlap reports whether the spans of the ends share memory.
func overlap(a, b *end) bool {
	aLo, aHi := a.layout.bounds()
	bLo, bHi := b.layout.bounds()
	return a.address(aLo) < b.address(bHi) && b.address(bLo) < a.address(aHi)
}

// copyRuns submits one copy per run: k runs of run elements in each row of the
// walk. A single one between device memories is left pending on both ends.
func copyRuns(op string, dst, src *end, w *walk, k, run, ds, ss int) error {
	device := dst
	if dst.kind != endDevice {
		device = src
	}
	q, err := device.queue(op)
	if err != nil {
		return err
	}
	bytes := uintptr(run * dst.size)
	if k == 1 && len(w.axes) == 0 && !overlap(dst, src) {
		ev, err := q.Memcpy(dst.at(w.posA), src.at(w.posB), bytes)
		return settle(op, dst, src, q, ev, err)
	}
	if overlap(dst, src) {
		return copyStaged(op, *dst, *src)
	}
	err = w.each(func(pd, ps int) error {
		for i := range k {
			ev, err := q.Memcpy(dst.at(pd+i*ds), src.at(ps+i*ss), bytes)
			if err != nil {
				return wrapErr(op, nil, err)
			}
			_ = ev.Close() // the barrier of Wait covers it; Close cannot fail
		}
		return nil
	})
	// What was submitted is waited for even after a failure, because the
	// caller may free the memory next.
	if werr := q.Wait(context.Background()); err == nil && werr != nil {
		err = wrapErr(op, nil, werr)
	}
	return err
}

// settle ends a copy of one submission: it stays pending when both ends are
// device memory, else it is waited for.
func settle(op string, dst, src *end, q *syclobj.Queue, ev *syclobj.Event, err error) error {
	if err != nil {
		return wrapErr(op, nil, err)
	}
	defer ev.Close()
	if dst.kind == endDevice && src.kind == endDevice {
		// Both, whatever the first says: the work was submitted.
		err := dst.buf.SetPending(q, ev)
		if other := src.buf.SetPending(q, ev); err == nil {
			err = other
		}
		if err != nil {
			return wrapErr(op, nil, err)
		}
		return nil
	}
	if err := ev.Wait(context.Background()); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}

// copyStaged copies through memory that the host may touch: device spans come
// in as one piece, elements are moved by the host, and a device span that was
// written goes back as one piece.
func copyStaged(op string, dst, src end) error {
	if src.kind == endDevice {
		s, err := stage(op, &src, true)
		if err != nil {
			return err
		}
		defer s.free()
		src = s.end
	}
	if dst.kind != endDevice {
		return copyHost(dst, src)
	}
	lo, hi := dst.layout.bounds()
	d, err := stage(op, &dst, hi-lo != dst.layout.Size() || zeroStride(&dst.layout))
	if err != nil {
		return err
	}
	defer d.free()
	if err := copyHost(d.end, src); err != nil {
		return err
	}
	return d.writeBack(op, &dst)
}

func zeroStride(l *Layout) bool {
	for i, s := range l.strides {
		if s == 0 && l.shape[i] > 1 {
			return true
		}
	}
	return false
}

// staged is a copy of a device span in memory that the host may touch.
type staged struct {
	end
	p     unsafe.Pointer
	lo    int // position of the span's first element in the original
	bytes uintptr
	q     *syclobj.Queue
}

// stage allocates staging memory for the span of a device end, host USM where
// the device has it, and reads the span into it if asked to.
func stage(op string, e *end, read bool) (*staged, error) {
	q, err := e.queue(op)
	if err != nil {
		return nil, err
	}
	lo, hi := e.layout.bounds()
	s := &staged{lo: lo, bytes: uintptr((hi - lo) * e.size), q: q}
	from := q
	if !q.Device().Supports(syclobj.USMHost) {
		if from, err = syclobj.HostPlace().Queue(); err != nil {
			return nil, wrapErr(op, nil, err)
		}
	}
	if s.p, err = from.Alloc(syclobj.USMHost, s.bytes, 0); err != nil {
		return nil, wrapErr(op, nil, err)
	}
	s.end = end{base: s.p, layout: e.layout, size: e.size}
	s.end.layout.offset -= lo
	if !read {
		return s, nil
	}
	if err := s.move(op, s.p, e.at(lo)); err != nil {
		s.free()
		return nil, err
	}
	return s, nil
}

func (s *staged) move(op string, dst, src unsafe.Pointer) error {
	ev, err := s.q.Memcpy(dst, src, s.bytes)
	if err != nil {
		return wrapErr(op, nil, err)
	}
	defer ev.Close()
	if err := ev.Wait(context.Background()); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}

func (s *staged) writeBack(op string, e *end) error { return s.move(op, e.at(s.lo), s.p) }

// free gives the staging memory back. It can only fail for memory that is not
// ours, which this is.
func (s *staged) free() { _ = syclobj.Free(s.p) }
