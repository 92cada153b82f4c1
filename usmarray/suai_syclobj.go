package usmarray

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// SyclObj is the syclobj of a dictionary: one of six forms, each of which names
// a context. The zero value is a missing one. Values may be copied; the context
// and queue forms borrow their object, a capsule is single-use.
type SyclObj struct {
	form     SyclForm
	filter   string
	context  *syclobj.Context
	queue    *syclobj.Queue
	capsule  *Capsule
	provider CapsuleProvider
}

// SyclForm names the forms.
type SyclForm uint8

const (
	// SyclNone is a missing syclobj.
	SyclNone SyclForm = iota
	// SyclFilter is a filter string ("opencl:cpu:0"): the default context of
	// that root device's platform.
	SyclFilter
	// SyclContext is a context.
	SyclContext
	// SyclQueue is a queue; its context counts, and copies use it.
	SyclQueue
	// SyclContextCapsule is a capsule "SyclContextRef".
	SyclContextCapsule
	// SyclQueueCapsule is a capsule "SyclQueueRef".
	SyclQueueCapsule
	// SyclProvider is an object with _get_capsule().
	SyclProvider
)

// String names the form as it is seen from Python.
func (f SyclForm) String() string {
	switch f {
	case SyclNone:
		return "none"
	case SyclFilter:
		return "filter string"
	case SyclContext:
		return "SyclContext"
	case SyclQueue:
		return "SyclQueue"
	case SyclContextCapsule:
		return "capsule SyclContextRef"
	case SyclQueueCapsule:
		return "capsule SyclQueueRef"
	case SyclProvider:
		return "object with _get_capsule"
	}
	return fmt.Sprintf("SyclForm(%d)", uint8(f))
}

// CapsuleProvider is an object that hands out capsules, as Python objects with
// a _get_capsule method do: a new one for each call, owned by the caller.
type CapsuleProvider interface {
	GetCapsule() (*Capsule, error)
}

// ByFilter names the default context of a root device.
func ByFilter(filter string) SyclObj { return SyclObj{form: SyclFilter, filter: filter} }

// ByContext names a context.
func ByContext(c *syclobj.Context) SyclObj { return SyclObj{form: SyclContext, context: c} }

// ByQueue names the context of a queue.
func ByQueue(q *syclobj.Queue) SyclObj { return SyclObj{form: SyclQueue, queue: q} }

// ByCapsule names the context that a capsule carries, or that of its queue.
func ByCapsule(c *Capsule) SyclObj {
	form := SyclContextCapsule
	if c != nil && c.IsQueue() {
		form = SyclQueueCapsule
	}
	return SyclObj{form: form, capsule: c}
}

// ByProvider names what the provider's capsule carries.
func ByProvider(p CapsuleProvider) SyclObj { return SyclObj{form: SyclProvider, provider: p} }

// Form tells which form it is.
func (o SyclObj) Form() SyclForm { return o.form }

// Filter is the filter string of a SyclFilter, else "".
func (o SyclObj) Filter() string { return o.filter }

// Context is the context of a SyclContext, else nil; borrowed.
func (o SyclObj) Context() *syclobj.Context { return o.context }

// Queue is the queue of a SyclQueue, else nil; borrowed.
func (o SyclObj) Queue() *syclobj.Queue { return o.queue }

// Capsule is the capsule of a capsule form, else nil; borrowed.
func (o SyclObj) Capsule() *Capsule { return o.capsule }

// Provider is the provider of a SyclProvider, else nil.
func (o SyclObj) Provider() CapsuleProvider { return o.provider }

// The names of capsules; a consumer renames one that it has used.
const (
	CapsuleContext     = "SyclContextRef"
	CapsuleQueue       = "SyclQueueRef"
	CapsuleContextUsed = "used_SyclContextRef"
	CapsuleQueueUsed   = "used_SyclQueueRef"
)

// Capsule is a named, single-use pointer to a sycl::context or sycl::queue, the
// Go counterpart of the Python capsules. A consumer copies the object and
// renames the capsule; the object it points to stays the producer's, who calls
// Close in either case.
type Capsule struct {
	ref   unsafe.Pointer
	queue bool
	used  atomic.Bool
	close func()
	once  sync.Once
}

// NewContextCapsule makes a capsule with a copy of a context.
func NewContextCapsule(rt *syclobj.Runtime, c *syclobj.Context) (*Capsule, error) {
	if rt == nil {
		return nil, nilRuntime("NewContextCapsule")
	}
	own, err := rt.ContextFromRef(c.Ref())
	if err != nil {
		return nil, wrapErr("NewContextCapsule", nil, err)
	}
	return &Capsule{ref: own.Ref(), close: func() { _ = own.Close() }}, nil
}

// NewQueueCapsule makes a capsule with a copy of a queue.
func NewQueueCapsule(rt *syclobj.Runtime, q *syclobj.Queue) (*Capsule, error) {
	if rt == nil {
		return nil, nilRuntime("NewQueueCapsule")
	}
	own, err := rt.QueueFromRef(q.Ref())
	if err != nil {
		return nil, wrapErr("NewQueueCapsule", nil, err)
	}
	return &Capsule{ref: own.Ref(), queue: true, close: func() { _ = own.Close() }}, nil
}

// CapsuleFromRef describes a pointer that came from elsewhere under one of the
// two unused names; it borrows the object, and release, which may be nil, is
// called by Close. Errors: ErrInterface for another name (a used one says so)
// or a null pointer.
func CapsuleFromRef(name string, ref unsafe.Pointer, release func()) (*Capsule, error) {
	const op = "CapsuleFromRef"
	switch name {
	case CapsuleContext, CapsuleQueue:
	case CapsuleContextUsed, CapsuleQueueUsed:
		return nil, keyErr(op, "syclobj", "the capsule %q was consumed already; ask its producer for a new one", name)
	default:
		return nil, keyErr(op, "syclobj", "a capsule named %q; %q or %q is needed", name, CapsuleContext, CapsuleQueue)
	}
	if ref == nil {
		return nil, keyErr(op, "syclobj", "the capsule %q holds a null pointer", name)
	}
	return &Capsule{ref: ref, queue: name == CapsuleQueue, close: release}, nil
}

// Name is the capsule's present name.
func (c *Capsule) Name() string {
	switch {
	case c.queue && c.used.Load():
		return CapsuleQueueUsed
	case c.queue:
		return CapsuleQueue
	case c.used.Load():
		return CapsuleContextUsed
	}
	return CapsuleContext
}

// IsQueue reports whether it carries a queue.
func (c *Capsule) IsQueue() bool { return c.queue }

// Take consumes the capsule: it is renamed, and the pointer returned, valid
// until the producer closes the capsule, so that the caller copies the object
// now. Errors: ErrInterface when it was taken before.
func (c *Capsule) Take() (ref unsafe.Pointer, err error) {
	if c.used.Swap(true) {
		return nil, keyErr("Capsule.Take", "syclobj", "the capsule %q was consumed already; ask its producer for a new one", c.Name())
	}
	return c.ref, nil
}

// Close ends the producer's object, whether the capsule was consumed or not. It
// may be called again.
func (c *Capsule) Close() error {
	c.once.Do(func() {
		c.used.Store(true)
		if c.close != nil {
			c.close()
		}
	})
	return nil
}

// resolved is the context or queue of a syclobj, and what to close afterwards.
type resolved struct {
	context *syclobj.Context
	queue   *syclobj.Queue
	device  *syclobj.Device // of a filter string
	owned   bool            // made from a capsule
}

// resolve finds the context. Nothing is copied for the Go forms.
func (o *SyclObj) resolve(op string, rt *syclobj.Runtime) (resolved, error) {
	switch o.form {
	case SyclContext:
		if o.context == nil {
			return resolved{}, keyErr(op, "syclobj", "the context is nil")
		}
		return resolved{context: o.context}, nil
	case SyclQueue:
		if o.queue == nil {
			return resolved{}, keyErr(op, "syclobj", "the queue is nil")
		}
		return resolved{queue: o.queue}, nil
	case SyclFilter:
		return resolveFilter(op, rt, o.filter)
	case SyclContextCapsule, SyclQueueCapsule:
		return o.capsule.resolve(op, rt)
	case SyclProvider:
		if o.provider == nil {
			return resolved{}, keyErr(op, "syclobj", "the provider is nil")
		}
		c, err := o.provider.GetCapsule()
		if err != nil {
			return resolved{}, &OpError{Op: op, Key: "syclobj", Kind: ErrInterface, Err: err}
		}
		if c == nil {
			return resolved{}, keyErr(op, "syclobj", "the provider gave no capsule")
		}
		defer c.Close()
		return c.resolve(op, rt)
	}
	return resolved{}, keyErr(op, "syclobj", "missing; give a filter string, a context, a queue, a capsule of one, or an object with _get_capsule")
}

// nilRuntime is the error of a syclobj that needs a Runtime to be resolved.
func nilRuntime(op string) error {
	return keyErr(op, "syclobj", "the Runtime is nil; give one from syclobj.Open")
}

// filterHit is the filter string that was resolved last: a program names few,
// and comparing one is cheaper than any table.
type filterHit struct {
	rt     *syclobj.Runtime
	filter string
	found  resolved
}

var lastFilter atomic.Pointer[filterHit]

// resolveFilter finds the default context of a device's platform. Whether the
// Runtime is still open is asked by whoever uses the context.
func resolveFilter(op string, rt *syclobj.Runtime, filter string) (resolved, error) {
	if h := lastFilter.Load(); h != nil && h.rt == rt && h.filter == filter {
		return h.found, nil
	}
	if rt == nil {
		return resolved{}, nilRuntime(op)
	}
	d, err := rt.Device(filter)
	if err != nil {
		return resolved{}, &OpError{Op: op, Key: "syclobj", Kind: ErrInterface, Err: err}
	}
	r := resolved{context: d.DefaultContext(), device: d}
	lastFilter.Store(&filterHit{rt, filter, r})
	return r, nil
}

// resolve copies the object of a capsule and renames it.
func (c *Capsule) resolve(op string, rt *syclobj.Runtime) (resolved, error) {
	if c == nil {
		return resolved{}, keyErr(op, "syclobj", "the capsule is nil")
	}
	if rt == nil {
		return resolved{}, nilRuntime(op)
	}
	ref, err := c.Take()
	if err != nil {
		return resolved{}, err
	}
	r := resolved{owned: true}
	if c.queue {
		r.queue, err = rt.QueueFromRef(ref)
	} else {
		r.context, err = rt.ContextFromRef(ref)
	}
	if err != nil {
		return resolved{}, &OpError{Op: op, Key: "syclobj", Kind: ErrInterface, Err: err}
	}
	return r, nil
}

// close ends the copies of a capsule's object. Closing never fails: it only
// drops references.
func (r *resolved) close() {
	if !r.owned {
		return
	}
	if r.queue != nil {
		_ = r.queue.Close()
	}
	if r.context != nil {
		_ = r.context.Close()
	}
}
