package memmgr

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/syclobj"
)

// usmResource gives unified shared memory of one context, device and kind,
// straight from the SYCL runtime.
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

// USM returns the resource of a queue's context and device for one kind of
// unified shared memory. It takes from the runtime at each allocation (1.5 us
// and more); put a [Pool] above it. The queue may be closed afterwards. The
// resource is an [io.Closer]: Close lets go of the context, which memory that was
// given out keeps alive until it is back.
//
// On a queue of the host backend the result is [Host]. When the device lacks
// the kind, or the queue is closed, the resource says so at each Allocate.
func USM(q *syclobj.Queue, kind syclobj.USMKind) Resource {
	if q == nil {
		return &usmResource{kind: kind, err: opError("USM", ErrRequest, "no queue was given; Runtime.DefaultQueue has one")}
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

// Place implements [Resource]; nil when the resource could not be made.
func (r *usmResource) Place() *syclobj.Place { return r.place }

// DeviceTotal returns the bytes of memory of the device.
func (r *usmResource) DeviceTotal() uint64 { return r.total }

// InUse returns the blocks and bytes given out and not yet back.
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
func (r *usmResource) Free(b Block) { FreeAfter(b, r, r.giveBack) }

func (r *usmResource) giveBack(b Block) {
	if err := usmFree(r.place, b.Address); err != nil {
		panic(misuse("Free", "%d bytes at %#x of %v: %w", b.Size, b.Address, r.place, err))
	}
	r.blocks.Add(-1)
	r.bytes.Add(-int64(b.Size))
	r.place.Release()
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
