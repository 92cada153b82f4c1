package syclobj

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Place describes all memory of one context, device and kind. It is reference counted: functions that
// return one retained document it, and Release drops a reference. Places are interned: equal places are
// the same pointer while one of them is held. Methods may be called from several goroutines. The
// description remains readable after Release; Context, Device and Queue require that the place is held.
type Place struct {
	ref       unsafe.Pointer // the usmb_place; nil for the host's
	serial    uint64
	refs      *int64 // the count inside ref
	kind      USMKind
	dlType    int32
	dlID      int32
	dlErr     Code
	why       string // for dlErr: names both contexts
	isDefault bool
	sub       bool
	root      int
	kinds     uint32
	filter    string
	context   ref // borrowed from the place, as are device and queue
	device    ref
	queue     ref

	mu   sync.Mutex
	ctxO *Context
	devO *Device
	qO   *Queue
	// known is a queue that HasQueue found to be the place's own.
	known atomic.Pointer[Queue]
}

// HostPlace returns the place of the host backend's memory, and of all other host memory: kind USMUnknown,
// DLPack device (kDLCPU, 0), filter "host". It needs no Release.
func HostPlace() *Place { return hostPlace }

// WrapPlace returns the Place of a usmb_place* that C code holds, borrowed: it does not change the count.
// nil is the host's place.
func WrapPlace(ref unsafe.Pointer) *Place {
	if ref == nil {
		return hostPlace
	}
	return placeFromC(ref)
}

// Ref returns the usmb_place*, borrowed; nil for the host's place.
func (p *Place) Ref() unsafe.Pointer { return p.ref }

// Retain adds a reference and returns p.
func (p *Place) Retain() *Place {
	if p.ref != nil {
		atomic.AddInt64(p.refs, 1)
	}
	return p
}

// Release drops one reference. The last one frees the place's references of context, device and queue.
func (p *Place) Release() {
	if p.ref == nil {
		return
	}
	// Only the last reference needs the C side.
	for n := atomic.LoadInt64(p.refs); n > 1; n = atomic.LoadInt64(p.refs) {
		if atomic.CompareAndSwapInt64(p.refs, n, n-1) {
			return
		}
	}
	placeRelease(p.ref)
}

// Kind returns the kind of the memory, USMUnknown for the host's.
func (p *Place) Kind() USMKind { return p.kind }

// HostReadable reports whether the host can access the memory.
func (p *Place) HostReadable() bool { return p.ref == nil || p.kind == USMShared || p.kind == USMHost }

// HasQueue reports whether q is the queue that Queue returns, through any object. It is false for closed queues.
func (p *Place) HasQueue(q *Queue) bool {
	if p.queue == nil || q == nil {
		return false
	}
	if p.known.Load() == q {
		return q.Ref() != nil
	}
	if !q.h.is(p.queue) {
		return false
	}
	p.known.Store(q)
	return true
}

// IsHost reports whether this is plain host memory, unknown to SYCL.
func (p *Place) IsHost() bool { return p.ref == nil }

// IsDefaultContext reports whether the context is the default of its platform.
func (p *Place) IsDefaultContext() bool { return p.isDefault }

// FilterString returns the filter string of the device's root device, "host" for the host's place.
func (p *Place) FilterString() string { return p.filter }

// DLPackDevice returns the DLPack device of the memory: (14, index of the root device), or (1, 0) for the
// host. ErrNotDefault, which names both contexts by their hashes, and ErrNoIndex report memory that DLPack
// cannot describe.
func (p *Place) DLPackDevice() (deviceType, id int32, err error) {
	if err := notNil("Place.DLPackDevice", p); err != nil {
		return 0, 0, err
	}
	if p.dlErr != codeOK {
		return 0, 0, opErr("Place.DLPackDevice", p.dlErr, "%s", p.why)
	}
	return p.dlType, p.dlID, nil
}

// where returns the name of the device.
func (p *Place) where() string {
	if p.filter == "" {
		return "a device outside the list of root devices"
	}
	if p.sub {
		return "a part of " + p.filter
	}
	return p.filter
}

// String returns the kind and the device.
func (p *Place) String() string {
	if p.ref == nil {
		return "host memory"
	}
	return p.kind.String() + " memory on " + p.where()
}

// Context returns the context of the memory. The place or the Runtime owns it; do not close it.
func (p *Place) Context() (*Context, error) {
	const op = "Place.Context"
	if err := notNil(op, p); err != nil {
		return nil, err
	}
	if p.ref == nil {
		return hostDevice.ctx, nil
	}
	t, err := openTable(op)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctxO != nil && p.ctxO.table == t {
		return p.ctxO, nil
	}
	c := t.contextOf(p.context)
	if c == nil {
		c = t.newContext(p.context)
		c.shared, c.h.borrowed = true, true
	}
	if err := t.need(op); err != nil {
		return nil, err
	}
	p.ctxO = c
	return c, nil
}

// Device returns the device of the memory. The place or the Runtime owns it; do not close it.
func (p *Place) Device() (*Device, error) {
	const op = "Place.Device"
	if err := notNil(op, p); err != nil {
		return nil, err
	}
	if p.ref == nil {
		return hostDevice, nil
	}
	t, err := openTable(op)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.devO != nil && p.devO.table == t {
		return p.devO, nil
	}
	d := t.rootOf(p.device)
	if d == nil {
		d = t.newDevice(p.device, nil)
		d.h.borrowed = true
	}
	if err := t.need(op); err != nil {
		return nil, err
	}
	p.devO = d
	return d, nil
}

// Queue returns a queue for copies of the memory: the default queue of the device, or one on the same
// context and device. The place or the Runtime owns it; do not close it.
func (p *Place) Queue() (*Queue, error) {
	const op = "Place.Queue"
	if err := notNil(op, p); err != nil {
		return nil, err
	}
	if p.ref == nil {
		return hostDevice.queue, nil
	}
	ctx, err := p.Context()
	if err != nil {
		return nil, err
	}
	d, err := p.Device()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.qO != nil && p.qO.table == ctx.table {
		return p.qO, nil
	}
	if d.queue != nil && d.queue.h.is(p.queue) {
		p.qO = d.queue
		return p.qO, nil
	}
	q := &Queue{table: ctx.table, ctx: ctx, device: d, shared: true}
	q.h.init(p.queue, sortQueue)
	q.h.borrowed = true
	ownCtx, ownDevice, code := q.describe()
	if code != codeOK {
		return nil, opErr(op, code, "on %s", p.where())
	}
	deleteRef(sortContext, ownCtx)
	deleteRef(sortDevice, ownDevice)
	p.qO = q
	return q, nil
}

// PlaceOf returns the place of the foreign memory [lo, hi), retained. The context or the queue may be nil;
// if both are given, the queue must be of that context. One C call asks the runtime for the kind of the
// first byte, which must be USM of the context (ErrNotUSM), for the kind of the last byte, which must be
// the same (ErrOverrun), and for the device. If hi == lo, it checks one address. Host USM, for which SYCL
// reports the first device of the context, is of the queue's device, if there is a queue.
//
// The addresses are integers because they have not been checked: the garbage collector may crash on an
// invalid pointer.
func (rt *Runtime) PlaceOf(ctx *Context, q *Queue, lo, hi uintptr) (*Place, error) {
	const op = "Runtime.PlaceOf"
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	var c, qr ref
	if ctx != nil && !ctx.host {
		r, ok := ctx.h.use()
		if !ok {
			return nil, opErr(op, ErrClosed, "the context")
		}
		defer ctx.h.done()
		c = r
	}
	if q != nil && !q.host {
		r, ok := q.h.use()
		if !ok {
			return nil, opErr(op, ErrClosed, "the queue")
		}
		defer q.h.done()
		qr = r
	}
	ask := placeFor
	if ctx != nil && q != nil && q.ctx == ctx {
		ask = placeIn
	}
	p, code := ask(c, qr, lo, hi)
	if code != codeOK {
		return nil, spanErr(op, code, lo, hi)
	}
	return placeFromC(p), nil
}

// DLPackPlace is PlaceOf by the rules for importing kDLOneAPI memory: id must be the index of a root
// device, and the memory must be USM of the default context of its platform. The place of host USM has that
// device. Other places have the device that the runtime returns for the address.
func (rt *Runtime) DLPackPlace(id int32, lo, hi uintptr) (*Place, error) {
	const op = "Runtime.DLPackPlace"
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	p, code := placeForDLPack(id, lo, hi)
	if code == ErrDeviceID {
		return nil, opErr(op, code, "%d of %d", id, len(rt.table.roots))
	}
	if code != codeOK {
		return nil, spanErr(op, code, lo, hi)
	}
	return placeFromC(p), nil
}

func spanErr(op string, code Code, lo, hi uintptr) error {
	return opErr(op, whileOpen(code), "[%#x, %#x)", lo, hi)
}

// whileOpen converts C's error for a missing table of devices: SYCL was in use, so the last Runtime was
// closed.
func whileOpen(code Code) Code {
	if code == ErrNoSYCL {
		return ErrClosed
	}
	return code
}

// The Go side of interned places by their small ids. A row is a cache entry:
// its serial shows whether it still belongs to the C place.
const (
	placeChunk  = 256
	placeChunks = 1024
)

var placeTable [placeChunks]atomic.Pointer[[placeChunk]atomic.Pointer[Place]]

// placeFromC returns the Go side of a C place that the caller holds.
func placeFromC(c unsafe.Pointer) *Place {
	id, serial := placeIdentity(c)
	chunk := id / placeChunk
	if chunk >= placeChunks {
		return describePlace(c)
	}
	rows := placeTable[chunk].Load()
	if rows == nil {
		placeTable[chunk].CompareAndSwap(nil, new([placeChunk]atomic.Pointer[Place]))
		rows = placeTable[chunk].Load()
	}
	row := &rows[id%placeChunk]
	for {
		p := row.Load()
		if p != nil && p.serial == serial {
			return p
		}
		fresh := describePlace(c)
		if row.CompareAndSwap(p, fresh) {
			return fresh
		}
	}
}
