package memmgr

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/syclobj"
)

// hostResource allocates whole pages of the process.
type hostResource struct {
	blocks atomic.Int64
	bytes  atomic.Int64
}

var host hostResource

// Host returns the resource of the host backend: zeroed pages of the process, mapped by
// each allocation and unmapped by each free. A [Pool] above it makes small allocations
// cheap. There is one per process.
func Host() Resource { return &host }

// Place implements [Resource].
func (*hostResource) Place() *syclobj.Place { return syclobj.HostPlace() }

// Allocate implements [Resource]. The memory is zeroed.
func (r *hostResource) Allocate(request Request) (Block, error) {
	if err := request.Check(); err != nil {
		return Block{}, err
	}
	size := roundUp(max(request.Size, 1), pageSize)
	address, err := mapPages(size, request.Alignment())
	if err != nil {
		return Block{}, &OutOfMemoryError{Request: request, Place: syclobj.HostPlace(), Rounded: uint64(size), Err: err}
	}
	r.blocks.Add(1)
	r.bytes.Add(int64(size))
	return Block{
		Address: address, Size: size, Requested: request.Size, Align: request.Alignment(),
	}, nil
}

// Free implements [Resource].
func (r *hostResource) Free(b Block) { FreeAfter(b, nil, r.unmap) }

func (r *hostResource) unmap(b Block) {
	if err := unmapPages(b.Address, b.Size); err != nil {
		panic(misuse("Free", "%d bytes at %#x of the host resource: %w", b.Size, b.Address, err))
	}
	r.blocks.Add(-1)
	r.bytes.Add(-int64(b.Size))
}

// InUse returns the number of blocks in use and their bytes.
func (r *hostResource) InUse() (blocks, bytes int64) { return r.blocks.Load(), r.bytes.Load() }

// roundUp rounds to a multiple of a power of two.
func roundUp(n, unit uintptr) uintptr { return (n + unit - 1) &^ (unit - 1) }

// Discard implements [Discarder]: the pages are zero when they are next touched.
func (r *hostResource) Discard(address, size uintptr) error {
	if err := discardPages(address, size); err != nil {
		return &OpError{Op: "Discard", Place: r.Place(), Err: err}
	}
	return nil
}

// wholePages returns the range of whole pages inside a range; bytes is 0 if there are none.
func wholePages(address, size uintptr) (from, bytes uintptr) {
	from = roundUp(address, pageSize)
	end := (address + size) &^ (pageSize - 1)
	if from >= end {
		return from, 0
	}
	return from, end - from
}

// noPages returns the error of memory whose pages cannot be returned.
func noPages(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, fmt.Sprintf(format, args...))
}
