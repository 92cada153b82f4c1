package syclobj

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

// DefaultAlign is the alignment in bytes of allocations without an explicit one.
const DefaultAlign = 256

// allocation is one live allocation of this package.
type allocation struct {
	place *Place // retained reference
	base  []byte // the mapping of host memory
}

// The live allocations by address. Free returns an error for other addresses, which
// would crash the process in the library.
const allocShards = 64

var allocShard [allocShards]struct {
	sync.Mutex
	live map[uintptr]allocation
	_    [48]byte // a cache line each
}

var liveHostAllocations atomic.Int64

func shardOf(p uintptr) int {
	return int((uint64(p) >> 8) * 0x9e3779b97f4a7c15 >> 58)
}

func remember(p unsafe.Pointer, a allocation) {
	s := &allocShard[shardOf(uintptr(p))]
	s.Lock()
	if s.live == nil {
		s.live = make(map[uintptr]allocation)
	}
	s.live[uintptr(p)] = a
	s.Unlock()
}

func forget(p unsafe.Pointer) (allocation, bool) {
	s := &allocShard[shardOf(uintptr(p))]
	s.Lock()
	a, ok := s.live[uintptr(p)]
	delete(s.live, uintptr(p))
	s.Unlock()
	return a, ok
}

// Alloc allocates size bytes (one byte for size 0, so that the address is never nil) aligned to align
// bytes, a power of two, or 0 for DefaultAlign. On a host queue the kind is ignored and the memory is
// zeroed; SYCL memory is not initialized. The caller frees it with Free; it outlives the queue and the
// Runtime. If the driver does not align the memory, Alloc allocates align bytes more, at most 64 MiB, and
// returns an aligned address inside. Errors: ErrAllocation if out of memory or if the driver does not align
// to more, ErrUnsupportedUSM if the device does not support the kind.
func (q *Queue) Alloc(kind USMKind, size, align uintptr) (unsafe.Pointer, error) {
	const op = "Queue.Alloc"
	if err := q.usable(op); err != nil {
		return nil, err
	}
	if align == 0 {
		align = DefaultAlign
	}
	if bits.OnesCount64(uint64(align)) != 1 {
		return nil, opErr(op, ErrArgument, "alignment %d is not a power of two", align)
	}
	if size > maxSize {
		return nil, opErr(op, ErrAllocation, "%d bytes exceed the address space", size)
	}
	if q.host {
		return hostAlloc(op, size, align)
	}
	place, err := q.Place(kind)
	if err != nil {
		return nil, err
	}
	ref, ok := q.h.use()
	if !ok {
		place.Release()
		return nil, &OpError{Op: op, Kind: ErrClosed}
	}
	p, code := usmAlloc(ref, q.kinds, kind, size, align)
	q.h.done()
	if code != codeOK {
		place.Release()
		return nil, opErr(op, code, "%d bytes of %v memory aligned to %d on %s", size, kind, align, q.device)
	}
	remember(p, allocation{place: place})
	return p, nil
}

func hostAlloc(op string, size, align uintptr) (unsafe.Pointer, error) {
	base, p, err := mapHost(max(size, 1), align)
	if err != nil {
		return nil, &OpError{Op: op, Kind: ErrAllocation, Err: fmt.Errorf("%d bytes of host memory: %w", size, err)}
	}
	liveHostAllocations.Add(1)
	remember(p, allocation{place: hostPlace, base: base})
	return p, nil
}

// Free frees memory that Queue.Alloc returned; the queue may be closed. Work on the memory must be
// complete. It returns ErrNotAllocated for anything but the exact address of a live allocation.
func Free(p unsafe.Pointer) error {
	const op = "Free"
	a, ok := forget(p)
	if !ok {
		return opErr(op, ErrNotAllocated, "%#x", uintptr(p))
	}
	if a.place.IsHost() {
		liveHostAllocations.Add(-1)
		if err := unmapHost(a.base); err != nil {
			return &OpError{Op: op, Err: fmt.Errorf("unmapping host memory: %w", err)}
		}
		return nil
	}
	code := usmFree(a.place.context, p)
	a.place.Release()
	if code != codeOK {
		return opErr(op, code, "%#x", uintptr(p))
	}
	return nil
}
