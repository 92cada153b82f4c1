package usmarray

import (
	"context"
	"slices"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// end is one side of a copy: the address of position 0, and the layout of the elements. Elements are whole
// bytes.
type end struct {
	base   unsafe.Pointer
	layout Layout
	size   int
	kind   endKind
	buf    memmgr.Buffer // unless endGo
}

type endKind uint8

const (
	endHost   endKind = iota // memory outside the Go heap that the host can access
	endGo                    // Go heap memory, which queues must not access
	endDevice                // memory that the host cannot access
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

// address returns at as an integer, which may be one past the memory's end.
func (e *end) address(position int) uintptr {
	return uintptr(e.base) + uintptr(position*e.size)
}

// queue returns a queue that can copy the memory of a device end.
func (e *end) queue(op string) (*syclobj.Queue, error) {
	q, err := e.buf.Place().Queue()
	if err != nil {
		return nil, wrapErr(op, nil, err)
	}
	return q, nil
}

// Costs in nanoseconds that determine how device memory is copied: one
// submission, and bytesPerN bytes through a staging copy.
const (
	submitNs  = 3000
	bytesPerN = 4
)

// copyEnds copies at least one element between two ends of the same shape.
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
	if directly(&dst, &src) && !overlap(&dst, &src) && (submits <= 64 || submits*submitNs < stagedBytes(&dst, &src)/bytesPerN) {
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

// stagedBytes returns the number of bytes that a staged copy moves through a queue.
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

// copyHost copies if the host can access both ends.
func copyHost(dst, src end) error {
	if !overlap(&dst, &src) {
		if dst.layout.isC() && src.layout.isC() { // planning costs more than the copy of a small array
			n := dst.layout.Size() * dst.size
			copyBytes(unsafe.Slice((*byte)(dst.at(dst.layout.offset)), n), unsafe.Slice((*byte)(src.at(src.layout.offset)), n))
			return nil
		}
		copyStrided(dst.base, src.base, &dst.layout, &src.layout, dst.size)
		return nil
	}
	tmp := make([]byte, dst.layout.Size()*dst.size)
	dense := rowMajor(dst.layout.shape)
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

// copyRuns submits one copy per run: k runs of run elements in each row of the walk. The ends do not
// overlap. A single copy between device memories is left pending on both ends.
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
	if k == 1 && len(w.axes) == 0 {
		ev, err := q.Memcpy(dst.at(w.posA), src.at(w.posB), bytes)
		return finish(op, dst, src, q, ev, err)
	}
	err = w.each(func(pd, ps int) error {
		for i := range k {
			ev, err := q.Memcpy(dst.at(pd+i*ds), src.at(ps+i*ss), bytes)
			if err != nil {
				return wrapErr(op, nil, err)
			}
			_ = ev.Close() // q.Wait below covers it; Close cannot fail
		}
		return nil
	})
	// Wait for submitted work even after a failure, because the
	// caller may free the memory next.
	if werr := q.Wait(context.Background()); err == nil && werr != nil {
		err = wrapErr(op, nil, werr)
	}
	return err
}

// settle waits for an event of work on buffers of which one is observed.
func settle(op string, ev *syclobj.Event, buffers ...memmgr.Buffer) error {
	if !slices.ContainsFunc(buffers, func(b memmgr.Buffer) bool { return cells.Of(b).Observed() }) {
		return nil
	}
	if err := ev.Wait(context.Background()); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}

// finish completes a copy of one submission: it stays pending if both ends are device memory that nobody observes,
// else finish waits for it.
func finish(op string, dst, src *end, q *syclobj.Queue, ev *syclobj.Event, err error) error {
	if err != nil {
		return wrapErr(op, nil, err)
	}
	defer ev.Close()
	if dst.kind == endDevice && src.kind == endDevice {
		// Record it on both, even if the first fails: the work was submitted.
		err := dst.buf.SetPending(q, ev)
		if other := src.buf.SetPending(q, ev); err == nil {
			err = other
		}
		if err != nil {
			return wrapErr(op, nil, err)
		}
		return settle(op, ev, dst.buf, src.buf)
	}
	if err := ev.Wait(context.Background()); err != nil {
		return wrapErr(op, nil, err)
	}
	return nil
}

// copyStaged copies through memory that the host can access: it reads device spans in one piece, moves
// elements on the host, and writes a device destination back in one piece.
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
	d, err := stage(op, &dst, !dst.layout.gapless())
	if err != nil {
		return err
	}
	defer d.free()
	if err := copyHost(d.end, src); err != nil {
		return err
	}
	return d.writeBack(op, &dst)
}

// staged is a copy of a device span in memory that the host can access.
type staged struct {
	end
	p     unsafe.Pointer
	lo    int // position of the span's first element in the original
	bytes uintptr
	q     *syclobj.Queue
}

// stage allocates staging memory for the span of a device end (host USM if the device supports it) and
// reads the span into it if requested.
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

// free frees the staging memory. It can fail only for memory that was not allocated here.
func (s *staged) free() { _ = syclobj.Free(s.p) }
