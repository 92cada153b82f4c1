package memmgr

import (
	"errors"
	"fmt"
)

// Discarder is a resource whose memory lies in pages that can go back to the
// system while the memory is allocated: [Host], and [USM] where the memory of the
// device is the process's own.
type Discarder interface {
	// Discard gives the pages of a range back, of memory that the resource gave
	// and nobody uses meanwhile. Address and size are multiples of the system's
	// page size. What is read there afterwards is undefined until it is written;
	// the address stays allocated. It may be called from any goroutine, and fails
	// with an error that wraps errors.ErrUnsupported, and tells why, where the
	// memory has no such pages.
	Discard(address, size uintptr) error
}

// Discard implements [Discarder]: the pages are zero when they are next touched.
func (r *hostResource) Discard(address, size uintptr) error {
	if err := discardPages(address, size); err != nil {
		return &OpError{Op: "Discard", Place: r.Place(), Err: err}
	}
	return nil
}

// wholePages returns the pages that lie within a range as a range; empty when
// there are none.
func wholePages(address, size uintptr) (from, bytes uintptr) {
	from = roundUp(address, pageSize)
	end := (address + size) &^ (pageSize - 1)
	if from >= end {
		return from, 0
	}
	return from, end - from
}

// Discard implements [Discarder]. The first call tries it out on memory of its
// own, since nothing in SYCL says whether it works.
func (r *usmResource) Discard(address, size uintptr) error {
	r.pages.once.Do(func() { r.pages.err = r.tryDiscard() })
	err := r.pages.err
	if err == nil {
		err = discardPages(address, size)
	}
	if err != nil {
		return &OpError{Op: "Discard", Place: r.place, Err: err}
	}
	return nil
}

// noPages is the error of memory that has no pages to give back.
func noPages(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, fmt.Sprintf(format, args...))
}
