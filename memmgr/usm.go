package memmgr

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/syclobj"
)

// USMResource gives unified shared memory of one context, device and kind,
// straight from the SYCL runtime.
type USMResource struct {
	events
	place  *syclobj.Place
	kind   syclobj.USMKind
	total  uint64
	err    error
	closed atomic.Bool
	blocks atomic.Int64
	bytes  atomic.Int64
}

// USM returns the resource of a queue's context and device for one kind of
// unified shared memory. It takes from the runtime at each allocation (1.5 us
// and more); put a [Pool] above it. The queue may be closed afterwards.
//
// On a queue of the host backend the result is [Host]. When the device lacks
// the kind, or the queue is closed, the resource says so at each Allocate.
func USM(q *syclobj.Queue, kind syclobj.USMKind) Resource {
	if q == nil {
		return &USMResource{kind: kind, err: &RequestError{Reason: "memmgr.USM was given no queue; Runtime.DefaultQueue has one"}}
	}
	if q.IsHost() {
		return Host()
	}
	place, err := q.Place(kind)
	if err != nil {
		return &USMResource{kind: kind, err: err}
	}
	return &USMResource{
		events: events{queue: placeQueue(place)},
		place:  place, kind: kind, total: q.Device().GlobalMemSize(),
	}
}

// Place implements [Resource]; nil when the resource could not be made.
func (r *USMResource) Place() *syclobj.Place { return r.place }

// DeviceTotal returns the bytes of memory of the device.
func (r *USMResource) DeviceTotal() uint64 { return r.total }

// InUse returns the blocks and bytes given out and not yet back.
func (r *USMResource) InUse() (blocks, bytes int64) { return r.blocks.Load(), r.bytes.Load() }

// Close lets go of the context. Memory that was given out keeps it alive until
// it is back. Allocate fails afterwards. Close may be called again.
func (r *USMResource) Close() error {
	if !r.closed.Swap(true) && r.place != nil {
		r.place.Release()
	}
	return nil
}

// Allocate implements [Resource].
func (r *USMResource) Allocate(request Request) (Block, error) {
	if err := request.check(); err != nil {
		return Block{}, err
	}
	if r.err != nil {
		return Block{}, r.err
	}
	if r.closed.Load() {
		return Block{}, &AccessError{Op: "Allocate", Place: r.place, Err: ErrClosed}
	}
	size := max(request.Size, 1)
	r.place.Retain()
	address, err := usmAlloc(r.place, size, request.align())
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
		Address: address, Size: size, Requested: request.Size, Align: request.align(),
		Tag: tagNumber(request.Tag),
	}, nil
}

// Free implements [Resource].
func (r *USMResource) Free(b Block) {
	if b.Event != 0 && !r.EventDone(b.Event) {
		event := b.Event
		b.Event = 0
		later.after(r, event, func() { r.Free(b) })
		return
	}
	if b.Event != 0 {
		r.ReleaseEvent(b.Event)
	}
	if err := usmFree(r.place, b.Address); err != nil {
		panic(fmt.Sprintf("memmgr: freeing %d bytes at %#x of %v: %v", b.Size, b.Address, r.place, err))
	}
	r.blocks.Add(-1)
	r.bytes.Add(-int64(b.Size))
	r.place.Release()
}

func placeText(p *syclobj.Place) string { return p.String() }
