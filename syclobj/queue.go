package syclobj

import (
	"sync/atomic"
	"unsafe"
)

// Queue takes work for one device in one context. Default queues belong to the
// Runtime, others to whoever made them.
type Queue struct {
	h          handle
	table      *deviceTable
	ctx        *Context
	device     *Device
	hash       uint64
	kinds      uint32 // bit 1<<kind for each USM kind its device supports
	properties QueueProperty
	host       bool
	shared     bool                     // belongs to the Runtime
	places     [4]atomic.Pointer[Place] // by kind, each retained by the queue
}

// NewQueue makes a queue on the device; ctx nil means the default context of
// its platform. The caller closes it.
func (rt *Runtime) NewQueue(ctx *Context, device *Device, properties QueueProperty) (*Queue, error) {
	const op = "Runtime.NewQueue"
	if device == nil {
		return nil, opErr(op, ErrNil, "no device")
	}
	if err := notNil(op, rt); err != nil {
		return nil, err
	}
	if device.host {
		return newHostQueue(device.ctx, device), nil
	}
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	if ctx == nil {
		if ctx = device.DefaultContext(); ctx == nil {
			return nil, opErr(op, ErrNoIndex, "%s; name a context", device)
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
	ref, code := queueNew(c, d, properties&InOrder != 0, properties&Profiling != 0)
	if code != codeOK {
		return nil, opErr(op, code, "on %s; is it a device of the context?", device)
	}
	return rt.table.wrapQueue(op, ref)
}

// QueueFromRef copies a sycl::queue*, such as a SyclQueueRef capsule carries.
// The caller closes the copy and keeps the original.
func (rt *Runtime) QueueFromRef(ref unsafe.Pointer) (*Queue, error) {
	const op = "Runtime.QueueFromRef"
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	if ref == nil {
		return nil, &OpError{Op: op, Kind: ErrNil}
	}
	own := copyRef(sortQueue, ref)
	if own == nil {
		return nil, &OpError{Op: op, Kind: ErrFailed}
	}
	return rt.table.wrapQueue(op, own)
}

// wrapQueue makes an owning Queue of a reference, which it consumes.
func (t *deviceTable) wrapQueue(op string, ref ref) (*Queue, error) {
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
		q.device = t.wrapDevice(device, nil)
	}
	if q.ctx = t.contextOf(ctx); q.ctx != nil {
		deleteRef(sortContext, ctx)
	} else {
		q.ctx = t.wrapContext(ctx)
	}
	q.h.final = q.dropParts
	if err := t.need(op); err != nil {
		q.h.close()
		return nil, err // closed beside us: what was not found may be a root device
	}
	return q, nil
}

// Context is the queue's context. It belongs to the queue, or to the Runtime.
func (q *Queue) Context() *Context { return q.ctx }

// Device is the queue's device. It belongs to the queue, or to the Runtime.
func (q *Queue) Device() *Device { return q.device }

// Properties are those that the queue was made with.
func (q *Queue) Properties() QueueProperty { return q.properties }

// IsHost reports whether this is a queue of the host backend.
func (q *Queue) IsHost() bool { return q.host }

// Hash returns the runtime's hash of the queue. Two Queues have the same hash if and only if they are
// the same queue of the runtime, as long as both are open.
func (q *Queue) Hash() uint64 { return q.hash }

// Ref is the sycl::queue*, borrowed; nil for host queues and after Close.
func (q *Queue) Ref() unsafe.Pointer { return q.h.get() }

// CopyRef is a reference (sycl::queue*) of the caller's own, who deletes it with
// DPCTLQueue_Delete; it outlives Close. nil for host queues. A Close meanwhile does it no
// harm, as it may to one who copies what Ref returned. Errors: ErrNil, ErrClosed, ErrFailed.
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

// Place is the place of memory that is allocated on the queue with this kind,
// retained: the caller calls Release. A host queue has one place for all kinds.
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
	// A queue that belongs to a place keeps none: the two would hold each
	// other for ever.
	if !q.h.borrowed && q.places[kind].CompareAndSwap(nil, p) {
		p.Retain()
	}
	return p, nil
}

// dropParts gives up what the queue holds beside its own reference.
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

// usable is ErrNil for a nil queue, ErrClosed for a closed one.
func (q *Queue) usable(op string) error {
	if err := notNil(op, q); err != nil {
		return err
	}
	return q.h.open(op)
}

// Close gives the queue up; on default queues it does nothing. Work that was
// submitted goes on, and memory that was allocated stays. It may be called
// again.
func (q *Queue) Close() error {
	if q != nil && !q.shared {
		q.h.close()
	}
	return nil
}
