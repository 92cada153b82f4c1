package syclobj

import (
	"sync/atomic"
	"unsafe"
)

// refSort is the type of a C reference, in the order of the counts in usmb_sycl.h.
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

// handle owns or borrows one C reference. Its count is one for the owner plus one for each call in
// progress, so that Close does not delete a reference that another goroutine uses.
type handle struct {
	ref      unsafe.Pointer
	users    atomic.Int32
	closed   atomic.Bool
	sort     refSort
	borrowed bool
	final    func() // called when the count becomes zero; may be nil
}

func (h *handle) init(ref unsafe.Pointer, sort refSort) {
	h.ref, h.sort = ref, sort
	h.users.Store(1)
}

// use keeps the reference alive until done. It returns false if the reference was deleted.
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

// close drops the owner's count, once.
func (h *handle) close() {
	if !h.closed.Swap(true) {
		h.done()
	}
}

// open returns ErrClosed after close.
func (h *handle) open(op string) error {
	if h.closed.Load() {
		return &OpError{Op: op, Kind: ErrClosed}
	}
	return nil
}

// get returns the reference, nil after close.
func (h *handle) get() unsafe.Pointer {
	if h.closed.Load() {
		return nil
	}
	return h.ref
}

// is reports whether r is this object in the runtime; false after the reference was deleted.
func (h *handle) is(r unsafe.Pointer) bool {
	own, ok := h.use()
	if !ok {
		return false
	}
	defer h.done()
	return equalRefs(h.sort, own, r)
}

// equal reports whether both are the same object in the runtime.
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
