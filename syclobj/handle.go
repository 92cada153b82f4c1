package syclobj

import (
	"sync/atomic"
	"unsafe"
)

// refSort says what a C reference refers to; the order is that of the counts
// in usmb_sycl.h.
type refSort int32

const (
	sortPlatform refSort = iota
	sortDevice
	sortContext
	sortQueue
	sortEvent
	sortPlace
	sortAllocation
	sortProgram
	sortKernel
	sortCount
)

// handle owns one C reference, or borrows one. The count starts at one for the
// owner and goes up for the length of each call, so that a Close on one
// goroutine never deletes what a call on another is using.
type handle struct {
	ref      unsafe.Pointer
	users    atomic.Int32
	closed   atomic.Bool
	sort     refSort
	borrowed bool
	final    func() // run once nobody uses the reference any more; may be nil
}

func (h *handle) init(ref unsafe.Pointer, sort refSort) {
	h.ref, h.sort = ref, sort
	h.users.Store(1)
}

// use keeps the reference alive until done; false when it is gone.
func (h *handle) use() (unsafe.Pointer, bool) {
	for {
		n := h.users.Load()
		if n <= 0 {
			return nil, false
		}
		if h.users.CompareAndSwap(n, n+1) {
			return h.ref, true
		}
	}
}

func (h *handle) done() {
	if h.users.Add(-1) != 0 {
		return
	}
	if h.final != nil {
		h.final()
	}
	if !h.borrowed {
		deleteRef(h.sort, h.ref)
	}
}

// close gives up the owner's count, once.
func (h *handle) close() {
	if !h.closed.Swap(true) {
		h.done()
	}
}

// open is ErrClosed after close.
func (h *handle) open(op string) error {
	if h.closed.Load() {
		return &OpError{Op: op, Kind: ErrClosed}
	}
	return nil
}

// get is the bare reference, nil after close.
func (h *handle) get() unsafe.Pointer {
	if h.closed.Load() {
		return nil
	}
	return h.ref
}

// is asks the runtime whether r is this object; it is not once the handle is
// gone.
func (h *handle) is(r unsafe.Pointer) bool {
	own, ok := h.use()
	if !ok {
		return false
	}
	defer h.done()
	return equalRefs(h.sort, own, r)
}

// equal asks the runtime whether both are one object.
func (h *handle) equal(o *handle) bool {
	if h == o {
		return true
	}
	r, ok := o.use()
	if !ok {
		return false
	}
	defer o.done()
	return h.is(r)
}
