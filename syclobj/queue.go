package syclobj

import (
	"sync/atomic"
	"unsafe"
)

// Queue executes work on one device in one context. The Runtime owns default queues; the caller of
// NewQueue or QueueFromRef owns and closes the others. Methods may be called from several goroutines.
type Queue struct {
	h          handle
	table      *deviceTable
	ctx        *Context
	device     *Device
	hash       uint64
	kinds      uint32 // bit 1<<kind for each supported USM kind
	properties QueueProperty
	host       bool
	shared     bool                     // owned by the Runtime
	places     [4]atomic.Pointer[Place] // by kind, each retained by the queue
}

// NewQueue creates a queue on the device; a nil ctx means the default context of its platform. The queue is
// in-order unless the properties include OutOfOrder; both together are ErrArgument. The caller closes it.
func (rt *Runtime) NewQueue(ctx *Context, device *Device, properties QueueProperty) (*Queue, error) {
	const op = "Runtime.NewQueue"
	if device == nil {
		return nil, opErr(op, ErrNil, "no device")
	}
	if err := notNil(op, rt); err != nil {
		return nil, err
	}
	if properties&(InOrder|OutOfOrder) == InOrder|OutOfOrder {
		return nil, opErr(op, ErrArgument, "InOrder and OutOfOrder exclude each other")
	}
	if device.host {
		return newHostQueue(device.ctx, device), nil
	}
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	if ctx == nil {
		if ctx = device.DefaultContext(); ctx == nil {
			return nil, opErr(op, ErrNoIndex, "%s; pass a context", device)
		}
	}
	if ctx.host {
		return nil, opErr(op, ErrArgument, "the host's context has no SYCL devices")
	}
	c, ok := ctx.h.use()
	if !ok {
		return nil, opErr(op, ErrClosed, "the context")
	}
	defer ctx.h.done()
	d, ok := device.h.use()
	if !ok {
		return nil, opErr(op, ErrClosed, "%s", device)
	}
	defer device.h.done()
	ref, code := queueNew(c, d, properties&OutOfOrder == 0, properties&Profiling != 0)
	if code != codeOK {
		return nil, opErr(op, code, "on %s; is it a device of the context?", device)
	}
	return rt.table.newQueue(op, ref)
}

// QueueFromRef copies a sycl::queue*, such as a SyclQueueRef capsule contains. The caller closes the copy
// and keeps the original.
func (rt *Runtime) QueueFromRef(ref unsafe.Pointer) (*Queue, error) {
	const op = "Runtime.QueueFromRef"
	own, err := rt.copyForeign(op, sortQueue, ref)
	if err != nil {
		return nil, err
	}
	return rt.table.newQueue(op, own)
}

// newQueue returns a Queue that owns ref. It deletes ref on error.
func (t *deviceTable) newQueue(op string, ref ref) (*Queue, error) {
	q := &Queue{table: t}
	q.h.init(ref, sortQueue)
	ctx, device, code := q.describe()
	if code != codeOK {
		q.h.close()
		return nil, opErr(op, code, "")
	}
	if q.device = t.rootOf(device); q.device != nil {
		deleteRef(sortDevice, device)
	} else {
		q.device = t.newDevice(device, nil)
	}
	if q.ctx = t.contextOf(ctx); q.ctx != nil {
		deleteRef(sortContext, ctx)
	} else {
		q.ctx = t.newContext(ctx)
	}
	q.h.final = q.dropParts
	if err := t.need(op); err != nil {
		q.h.close()
		return nil, err // closed concurrently: a device that was not found may be a root device
	}
	return q, nil
}

// Context returns the queue's context. The queue or the Runtime owns it.
func (q *Queue) Context() *Context { return q.ctx }

// Device returns the queue's device. The queue or the Runtime owns it.
func (q *Queue) Device() *Device { return q.device }

// Properties returns the properties with which the queue was created, including InOrder or OutOfOrder.
func (q *Queue) Properties() QueueProperty { return q.properties }

// IsHost reports whether this is a queue of the host backend.
func (q *Queue) IsHost() bool { return q.host }

// Hash returns the runtime's hash of the queue. Two Queues have the same hash if and only if they are
// the same queue of the runtime, as long as both are open.
func (q *Queue) Hash() uint64 { return q.hash }

// Ref returns the sycl::queue*, borrowed; nil for host queues and after Close.
func (q *Queue) Ref() unsafe.Pointer { return q.h.get() }

// CopyRef returns a reference (sycl::queue*) that the caller owns and deletes with DPCTLQueue_Delete; it
// outlives Close. It is nil for host queues. A concurrent Close is safe, unlike with a copy of Ref's
// result. Errors: ErrNil, ErrClosed, ErrFailed.
func (q *Queue) CopyRef() (unsafe.Pointer, error) {
	const op = "Queue.CopyRef"
	if err := q.usable(op); err != nil {
		return nil, err
	}
	if q.host {
		return nil, nil
	}
	ref, ok := q.h.use()
	if !ok {
		return nil, &OpError{Op: op, Kind: ErrClosed}
	}
	defer q.h.done()
	own := copyRef(sortQueue, ref)
	if own == nil {
		return nil, &OpError{Op: op, Kind: ErrFailed}
	}
	return own, nil
}

// Place returns the place of memory that is allocated on the queue with this kind, retained: the caller
// calls Release. A host queue has one place for all kinds.
func (q *Queue) Place(kind USMKind) (*Place, error) {
	const op = "Queue.Place"
	if err := q.usable(op); err != nil {
		return nil, err
	}
	if q.host {
		return hostPlace, nil
	}
	if kind <= USMUnknown || kind > USMHost {
		return nil, opErr(op, ErrArgument, "kind %v", kind)
	}
	ref, ok := q.h.use()
	if !ok {
		return nil, &OpError{Op: op, Kind: ErrClosed}
	}
	defer q.h.done()
	if p := q.places[kind].Load(); p != nil {
		return p.Retain(), nil
	}
	c, code := placeNew(ref, kind)
	if code != codeOK {
		return nil, opErr(op, whileOpen(code), "%v memory on %s", kind, q.device)
	}
	p := placeFromC(c)
	// A queue that belongs to a place must not retain one: the two would keep each
	// other alive.
	if !q.h.borrowed && q.places[kind].CompareAndSwap(nil, p) {
		p.Retain()
	}
	return p, nil
}

// dropParts releases the queue's context, device and places.
func (q *Queue) dropParts() {
	q.dropPlaces()
	_ = q.device.Close() // never fails; does nothing on roots
	_ = q.ctx.Close()    // never fails; does nothing on default contexts
}

func (q *Queue) dropPlaces() {
	for i := range q.places {
		if p := q.places[i].Swap(nil); p != nil {
			p.Release()
		}
	}
}

// usable returns ErrNil for a nil queue and ErrClosed for a closed one.
func (q *Queue) usable(op string) error {
	if err := notNil(op, q); err != nil {
		return err
	}
	return q.h.open(op)
}

// Close releases the queue; it does nothing on default queues. Submitted work continues, and allocated
// memory stays. It may be called repeatedly.
func (q *Queue) Close() error {
	if q != nil && !q.shared {
		q.h.close()
	}
	return nil
}
