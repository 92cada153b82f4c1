package syclobj

import (
	"sync/atomic"
	"unsafe"
)

type queueFacts struct {
	context, device    ref // owned by the receiver
	hash               uint64
	kinds              uint32
	inOrder, profiling bool
}

// Queue takes work for one device in one context. Default queues belong to the
// Runtime, others to whoever made them.
type Queue struct {
	h         handle
	world     *world
	ctx       *Context
	device    *Device
	hash      uint64
	kinds     uint32
	inOrder   bool
	profiling bool
	host      bool
	shared    bool                     // belongs to the Runtime
	places    [4]atomic.Pointer[Place] // by kind, each retained by the queue
}

// NewQueue makes a queue on the device; ctx nil means the default context of
// its platform. The caller closes it.
func (rt *Runtime) NewQueue(ctx *Context, device *Device, properties QueueProperty) (*Queue, error) {
	const op = "Runtime.NewQueue"
	if device == nil {
		return nil, opErr(op, ErrNil, "no device")
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
	return rt.world.wrapQueue(op, ref)
}

// QueueFromRef copies a sycl::queue*, such as a SyclQueueRef capsule carries.
// The caller closes the copy and keeps the original.
func (rt *Runtime) QueueFromRef(ref unsafe.Pointer) (*Queue, error) {
	const op = "Runtime.QueueFromRef"
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	if ref == nil {
		return nil, &OpError{Op: op, Err: ErrNil}
	}
	own := copyRef(sortQueue, ref)
	if own == nil {
		return nil, &OpError{Op: op, Err: ErrFailed}
	}
	return rt.world.wrapQueue(op, own)
}

// wrapQueue makes an owning Queue of a reference, which it consumes.
func (w *world) wrapQueue(op string, ref ref) (*Queue, error) {
	facts, code := describeQueue(ref)
	if code != codeOK {
		deleteRef(sortQueue, ref)
		return nil, opErr(op, code, "")
	}
	q := &Queue{world: w, hash: facts.hash, kinds: facts.kinds, inOrder: facts.inOrder, profiling: facts.profiling}
	q.h.init(ref, sortQueue)
	if q.device = w.rootOf(facts.device); q.device != nil {
		deleteRef(sortDevice, facts.device)
	} else {
		q.device = w.wrapDevice(facts.device, nil)
	}
	if q.ctx = w.contextOf(facts.context); q.ctx != nil {
		deleteRef(sortContext, facts.context)
	} else {
		q.ctx = w.wrapContext(facts.context)
	}
	q.h.final = q.dropParts
	if err := w.need(op); err != nil {
		q.h.close()
		return nil, err // closed beside us: what was not found may be a root device
	}
	return q, nil
}

// Context is the queue's context. It belongs to the queue, or to the Runtime.
func (q *Queue) Context() *Context { return q.ctx }

// Device is the queue's device. It belongs to the queue, or to the Runtime.
func (q *Queue) Device() *Device { return q.device }

// InOrder reports whether each submission starts after the one before.
func (q *Queue) InOrder() bool { return q.inOrder }

// Profiling reports whether events of the queue record times.
func (q *Queue) Profiling() bool { return q.profiling }

// IsHost reports whether this is a queue of the host backend.
func (q *Queue) IsHost() bool { return q.host }

// Equal reports whether both are the same queue of the runtime.
func (q *Queue) Equal(o *Queue) bool {
	return q == o || (o != nil && !q.host && !o.host && q.h.equal(&o.h))
}

// Hash is the runtime's own hash; equal queues have equal hashes.
func (q *Queue) Hash() uint64 { return q.hash }

// Ref is the sycl::queue*, borrowed; nil for host queues and after Close.
func (q *Queue) Ref() unsafe.Pointer { return q.h.get() }

// Place is the place of memory that is allocated on the queue with this kind,
// retained: the caller calls Release. A host queue has one place for all kinds.
func (q *Queue) Place(kind USMKind) (*Place, error) {
	const op = "Queue.Place"
	if q.host {
		return hostPlace, q.h.open(op)
	}
	if kind <= USMUnknown || kind > USMHost {
		return nil, opErr(op, ErrArgument, "kind %v", kind)
	}
	ref, ok := q.h.use()
	if !ok {
		return nil, &OpError{Op: op, Err: ErrClosed}
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

// Close gives the queue up; on default queues it does nothing. Work that was
// submitted goes on, and memory that was allocated stays. It may be called
// again.
func (q *Queue) Close() error {
	if !q.shared {
		q.h.close()
	}
	return nil
}

// String names the device.
func (q *Queue) String() string { return "queue on " + q.device.String() }
