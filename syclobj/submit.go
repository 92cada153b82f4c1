package syclobj

import (
	"context"
	"runtime"
	"unsafe"
)

// All submissions start after the events of deps, and after earlier
// work if the queue is in-order. nil and completed events are ignored. An event
// that was closed without being waited for is ErrClosed, because the order cannot
// be guaranteed. The caller closes the returned Event, unless it was
// waited for. On
// a host queue they wait for deps, execute the work and return a completed event.
//
// Addresses must stay valid until the work is complete, and must not be in the Go
// heap; Write and Read copy from and to Go memory.

// Memcpy copies n bytes from src to dst. Both may be USM or other memory that the device and host can
// access.
func (q *Queue) Memcpy(dst, src unsafe.Pointer, n uintptr, deps ...*Event) (*Event, error) {
	const op = "Queue.Memcpy"
	if n == 0 {
		return q.Barrier(deps...)
	}
	if err := checkSpan(op, dst, n); err != nil {
		return nil, err
	}
	if err := checkSpan(op, src, n); err != nil {
		return nil, err
	}
	return q.submit(op, deps, work{kind: workMemcpy, dst: dst, src: src, n: n})
}

// Memset sets n bytes from dst on to value.
func (q *Queue) Memset(dst unsafe.Pointer, value byte, n uintptr, deps ...*Event) (*Event, error) {
	const op = "Queue.Memset"
	if n == 0 {
		return q.Barrier(deps...)
	}
	if err := checkSpan(op, dst, n); err != nil {
		return nil, err
	}
	return q.submit(op, deps, work{kind: workMemset, dst: dst, value: value, n: n})
}

// Fill writes a pattern of 1, 2, 4, 8 or 16 bytes count times from dst on; dst is aligned to the pattern's
// length.
func (q *Queue) Fill(dst unsafe.Pointer, pattern []byte, count uintptr, deps ...*Event) (*Event, error) {
	const op = "Queue.Fill"
	width := uintptr(len(pattern))
	if width == 0 || width > 16 || width&(width-1) != 0 {
		return nil, opErr(op, ErrArgument, "a pattern of %d bytes; use 1, 2, 4, 8 or 16", width)
	}
	if count == 0 {
		return q.Barrier(deps...)
	}
	if count > ^uintptr(0)/width {
		return nil, opErr(op, ErrArgument, "%d patterns of %d bytes", count, width)
	}
	if err := checkSpan(op, dst, count*width); err != nil {
		return nil, err
	}
	if uintptr(dst)%width != 0 {
		return nil, opErr(op, ErrArgument, "%#x is not aligned to the pattern's %d bytes", uintptr(dst), width)
	}
	w := work{kind: workFill, dst: dst, width: width, n: count}
	copy(w.pattern[:], pattern)
	return q.submit(op, deps, w)
}

// Prefetch requests that n bytes of USM from p on are moved to the device.
func (q *Queue) Prefetch(p unsafe.Pointer, n uintptr, deps ...*Event) (*Event, error) {
	const op = "Queue.Prefetch"
	if n == 0 {
		return q.Barrier(deps...)
	}
	if err := checkSpan(op, p, n); err != nil {
		return nil, err
	}
	return q.submit(op, deps, work{kind: workPrefetch, dst: p, n: n})
}

// Barrier completes after deps, or, without deps, after all work submitted to the queue so far. Later work
// of the queue starts after it.
func (q *Queue) Barrier(deps ...*Event) (*Event, error) {
	return q.submit("Queue.Barrier", deps, work{})
}

// Wait blocks until all work submitted so far is complete or ctx ends; the work then continues.
func (q *Queue) Wait(ctx context.Context) error {
	e, err := q.submit("Queue.Wait", nil, work{})
	if err != nil {
		return err
	}
	defer e.Close()
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.Wait(ctx)
}

// Write copies Go memory to dst, after deps, and returns when the copy is complete.
func (q *Queue) Write(dst unsafe.Pointer, src []byte, deps ...*Event) error {
	p := unsafe.Pointer(unsafe.SliceData(src))
	return q.copyPinned("Queue.Write", dst, p, p, len(src), deps)
}

// Read copies from src to Go memory, after deps, and returns when the copy is complete.
func (q *Queue) Read(dst []byte, src unsafe.Pointer, deps ...*Event) error {
	p := unsafe.Pointer(unsafe.SliceData(dst))
	return q.copyPinned("Queue.Read", p, src, p, len(dst), deps)
}

// copyPinned copies n bytes and waits. pin is the Go memory of the two.
func (q *Queue) copyPinned(op string, dst, src, pin unsafe.Pointer, n int, deps []*Event) error {
	if n == 0 {
		if err := q.usable(op); err != nil {
			return err
		}
		return waitAll(deps)
	}
	var pinner runtime.Pinner
	pinner.Pin(pin)
	defer pinner.Unpin()
	e, err := q.Memcpy(dst, src, uintptr(n), deps...)
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Wait(context.Background())
}

// workKind is a kind of submission.
type workKind int

const (
	workBarrier workKind = iota
	workMemcpy
	workMemset
	workFill
	workPrefetch
)

// work is one submission, by value so that it needs no allocation.
type work struct {
	kind     workKind
	dst, src unsafe.Pointer
	n        uintptr // bytes; for a fill, patterns
	width    uintptr // bytes of a pattern
	pattern  [16]byte
	value    byte
}

// submit converts deps to references, which it keeps alive during the call, and the result to an Event.
func (q *Queue) submit(op string, deps []*Event, w work) (*Event, error) {
	if err := q.usable(op); err != nil {
		return nil, err
	}
	if q.host {
		if err := waitAll(deps); err != nil {
			return nil, err
		}
		w.onHost()
		return completeEvent, nil
	}
	queue, ok := q.h.use()
	if !ok {
		return nil, &OpError{Op: op, Kind: ErrClosed}
	}
	defer q.h.done()
	var room [4]ref
	refs := room[:0]
	for i, e := range deps {
		if e.known() {
			continue
		}
		r, ok := e.h.use()
		if !ok {
			if e.known() {
				continue
			}
			return nil, opErr(op, ErrClosed, "dependency %d was closed before it was known to be complete", i)
		}
		defer e.h.done()
		refs = append(refs, r)
	}
	event, code := submitWork(queue, &w, refs)
	if code != codeOK {
		return nil, opErr(op, code, "on %s", q.device)
	}
	return newEvent(event, q.properties&Profiling != 0), nil
}

// onHost executes the work.
func (w *work) onHost() {
	switch w.kind {
	case workBarrier, workPrefetch: // nothing to wait for or to move
	case workMemcpy:
		copy(unsafe.Slice((*byte)(w.dst), w.n), unsafe.Slice((*byte)(w.src), w.n))
	case workMemset:
		b := unsafe.Slice((*byte)(w.dst), w.n)
		for i := range b {
			b[i] = w.value
		}
	case workFill:
		b := unsafe.Slice((*byte)(w.dst), w.n*w.width)
		for n := copy(b, w.pattern[:w.width]); n < len(b); {
			n += copy(b[n:], b[:n])
		}
	}
}

func waitAll(deps []*Event) error {
	for _, e := range deps {
		if err := e.Wait(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// checkSpan refuses nil and spans that wrap around the address space.
func checkSpan(op string, p unsafe.Pointer, n uintptr) error {
	if p == nil {
		return opErr(op, ErrNil, "%d bytes at nil", n)
	}
	if n > uintptr(maxSize) || uintptr(p)+n < uintptr(p) {
		return opErr(op, ErrArgument, "%d bytes at %#x exceed the address space", n, uintptr(p))
	}
	return nil
}

const maxSize = ^uintptr(0) >> 1
