package memmgr

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/syclobj"
)

// usmResource allocates unified shared memory of one context, device and kind from the
// SYCL runtime.
type usmResource struct {
	events
	place  *syclobj.Place
	kind   syclobj.USMKind
	total  uint64
	err    error
	closed atomic.Bool
	blocks atomic.Int64
	bytes  atomic.Int64

	pages struct { // see Discard
		once sync.Once
		err  error
	}
}

// USM returns the resource of a queue's context and device for one kind of unified shared
// memory. It calls the SYCL runtime for each allocation, which takes 1.5 us or more; put a
// [Pool] above it. The queue may be closed afterwards. The resource is an [io.Closer]:
// Close releases the context, which memory in use keeps alive.
//
// On a queue of the host backend the result is [Host]. If the device does not support the
// kind, or the queue is closed, each Allocate returns the error.
func USM(q *syclobj.Queue, kind syclobj.USMKind) Resource {
	if q == nil {
		return &usmResource{kind: kind, err: opError("USM", ErrRequest, "the queue is nil; use Runtime.DefaultQueue")}
	}
	if q.IsHost() {
		return Host()
	}
	place, err := q.Place(kind)
	if err != nil {
		return &usmResource{kind: kind, err: err}
	}
	return &usmResource{
		events: events{queue: placeQueue(place)},
		place:  place, kind: kind, total: q.Device().Info().GlobalMemSize,
	}
}

// Place implements [Resource]; nil if the resource could not be made.
func (r *usmResource) Place() *syclobj.Place { return r.place }

// DeviceTotal returns the bytes of memory of the device.
func (r *usmResource) DeviceTotal() uint64 { return r.total }

// InUse returns the number of blocks in use and their bytes.
func (r *usmResource) InUse() (blocks, bytes int64) { return r.blocks.Load(), r.bytes.Load() }

// Close implements io.Closer. Allocate fails afterwards. Close may be called again.
func (r *usmResource) Close() error {
	if !r.closed.Swap(true) && r.place != nil {
		r.place.Release()
	}
	return nil
}

// Allocate implements [Resource].
func (r *usmResource) Allocate(request Request) (Block, error) {
	if err := request.Check(); err != nil {
		return Block{}, err
	}
	if r.err != nil {
		return Block{}, r.err
	}
	if r.closed.Load() {
		return Block{}, &OpError{Op: "Allocate", Place: r.place, Kind: ErrClosed}
	}
	size := max(request.Size, 1)
	r.place.Retain()
	address, err := usmAlloc(r.place, size, request.Alignment())
	if err != nil {
		r.place.Release()
		if errors.Is(err, syclobj.ErrAllocation) {
			err = &OutOfMemoryError{Request: request, Place: r.place, Rounded: uint64(size), DeviceTotal: r.total, Err: err}
		}
		return Block{}, err
	}
	r.blocks.Add(1)
	r.bytes.Add(int64(size))
	return Block{
		Address: address, Size: size, Requested: request.Size, Align: request.Alignment(),
	}, nil
}

// Free implements [Resource].
func (r *usmResource) Free(b Block) { FreeAfter(b, r, r.free) }

func (r *usmResource) free(b Block) {
	if err := usmFree(r.place, b.Address); err != nil {
		panic(misuse("Free", "%d bytes at %#x of %v: %w", b.Size, b.Address, r.place, err))
	}
	r.blocks.Add(-1)
	r.bytes.Add(-int64(b.Size))
	r.place.Release()
}

// Discard implements [Discarder]. The first call tries it on memory of its own, because
// SYCL does not report whether it works.
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
