package memmgr

import (
	"context"
	"fmt"
	"math/bits"
	"reflect"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// DefaultAlign is the alignment in bytes of an allocation that asks for none.
const DefaultAlign = 256

// Request says what memory is wanted.
type Request struct {
	// Size in bytes; 0 is allowed and gives a valid address of its own.
	Size uintptr
	// Align is a power of two in bytes; 0 means [DefaultAlign].
	Align uintptr
	// Queue the memory will first be used on; nil when not known. A resource
	// that orders reuse by queues uses it, others ignore it.
	Queue *syclobj.Queue
	// Tag names the user of the memory in statistics and reports.
	Tag string
	// Context makes a request wait for room where a resource can wait ([Pool]),
	// until it ends. nil: a request that cannot be served now fails now.
	Context context.Context
}

// Alignment returns the alignment in bytes that holds for the request.
func (r *Request) Alignment() uintptr {
	if r.Align == 0 {
		return DefaultAlign
	}
	return r.Align
}

// Check returns an [*OpError] of kind ErrRequest when no resource can fulfil the
// request.
func (r *Request) Check() error {
	if r.Align&(r.Align-1) != 0 {
		return r.refuse("the alignment must be a power of two")
	}
	if r.Alignment() > maxSize || r.Size > maxSize-r.Alignment() {
		return r.refuse("size and alignment are together larger than %d bytes, the most that can be addressed", maxSize)
	}
	return nil
}

// refuse is the error of a request that makes no sense.
func (r *Request) refuse(format string, args ...any) error {
	return opError("Allocate", ErrRequest, "%d bytes aligned to %d: %s", r.Size, r.Alignment(), fmt.Sprintf(format, args...))
}

// maxSize leaves room for rounding below the largest int.
const maxSize = uintptr(1)<<(bits.UintSize-2) - 1

// Block is memory on its way between a resource and its user: what Allocate
// returns and Free takes back. It is a plain value; whoever frees passes on the
// same address and cookie.
type Block struct {
	// Address of the first byte, aligned as asked.
	Address uintptr
	// Size in bytes that may be used; at least the size asked for.
	Size uintptr
	// Requested is the size asked for.
	Requested uintptr
	// Align is the alignment asked for.
	Align uintptr
	// Cookie belongs to the resource that gave the block.
	Cookie uint64
	// Queue is a reference of the queue of last use (sycl::queue*), borrowed;
	// 0 for none. Set by the user for Free.
	Queue uintptr
	// Event is an owned reference of the event (sycl::event*) that the memory's
	// last work ends with, 0 for none. Set by the user for Free, which takes it.
	Event uintptr
}

// Resource is a source of memory of one place, in the manner of
// http.RoundTripper: small, so that one resource can wrap another.
//
// Both methods may be called from any number of goroutines. A resource that
// wraps another one also has an Upstream() Resource method, by which [As] finds
// the abilities of the wrapped ones.
type Resource interface {
	// Allocate returns memory for the request, or a typed error: a
	// [*OpError] when the request makes no sense, a [*OutOfMemoryError] when memory
	// ran out. It never returns a nil address without error.
	Allocate(Request) (Block, error)

	// Free takes a block back, with its pending event if there is one; the
	// memory is not reused before that is done, and Free does not wait for it.
	// Freeing what was not allocated, or twice, panics with a [*UseError] where it
	// is detected.
	Free(Block)

	// Place tells the facts of the memory that this resource gives.
	Place() *syclobj.Place
}

// Adopter is a resource that owns what is made of its memory, such as the memory of an
// arena (package arena). Whoever makes an owning value of its memory hands it over with
// Adopt.
type Adopter interface {
	// Adopt takes over the duty to release x, which is comparable. It fails with an error
	// of kind [ErrClosed] when the resource was closed; then x stays the caller's. Valid
	// reports whether x was not released yet.
	Adopt(x interface {
		Release()
		Valid() bool
	}) error
}

// Trimmer is a resource that can give idle memory back.
type Trimmer interface {
	// Trim returns idle memory to where it came from until at most keep bytes
	// are held in reserve, and says how many bytes went back.
	Trim(keep uint64) (freed uint64)
}

// Discarder is a resource whose memory lies in pages that can go back to the
// system while the memory is allocated: [Host], and [USM] where the memory of the
// device is the process's own.
type Discarder interface {
	// Discard gives the pages of a range back, of memory that the resource gave
	// and nobody uses meanwhile. Address and size are multiples of the system's
	// page size. What is read there afterwards is undefined until it is written;
	// the address stays allocated. It may be called from any goroutine, and fails
	// with an error that wraps errors.ErrUnsupported, and tells why, where the
	// memory has no such pages.
	Discard(address, size uintptr) error
}

// Synchronizer knows the order of work on the memory of a resource. Events and
// queues are raw references (sycl::event*, sycl::queue*), never 0.
type Synchronizer interface {
	// EventDone reports whether the work of the event is complete.
	EventDone(event uintptr) bool
	// WaitEvent blocks until it is complete.
	WaitEvent(event uintptr) error
	// CopyEvent returns an owned second reference of an event.
	CopyEvent(event uintptr) uintptr
	// ReleaseEvent ends the ownership of an event.
	ReleaseEvent(event uintptr)
	// Barrier submits a barrier to the queue, or to the place's own queue for
	// 0, and returns an owned event; 0 when nothing can be pending.
	Barrier(queue uintptr) (uintptr, error)
	// Join returns an owned event that is done when both events are, submitted
	// to the queue, or to the place's own queue for 0. It takes neither.
	Join(queue, a, b uintptr) (uintptr, error)
	// SameOrder reports whether everything on queue b that comes after work on
	// queue a in program order also runs after it: one in-order queue.
	SameOrder(a, b uintptr) bool
	// QueueRef returns the reference by which cells name a queue, 0 when none
	// does.
	QueueRef(q *syclobj.Queue) uintptr
}

// As finds an ability: the first resource of type T on the way from r to its
// innermost upstream.
func As[T any](r Resource) (T, bool) {
	for !missing(r) {
		if t, ok := r.(T); ok {
			return t, true
		}
		u, ok := r.(interface{ Upstream() Resource })
		if !ok {
			break
		}
		r = u.Upstream()
	}
	var none T
	return none, false
}

// FreeAfter calls free with the block once the event that it carries is done: now,
// if there is none, else later on another goroutine. s knows the event; nil stands
// for the SYCL runtime. It is the Free of a resource that reuses nothing.
func FreeAfter(b Block, s Synchronizer, free func(Block)) {
	if s == nil {
		s = systemEvents
	}
	work := lastWork{sync: s, events: [2]uintptr{dropIfDone(s, b.Event)}}
	b.Event = 0
	if work.over() {
		free(b)
		return
	}
	keeper.after(work, func() { free(b) })
}

// upstream is the part that resources which wrap another one share.
type upstream struct{ from Resource }

// over returns it for a resource, which may be missing.
func over(r Resource) upstream {
	if missing(r) {
		r = noResource{}
	}
	return upstream{r}
}

// Place implements [Resource].
func (u *upstream) Place() *syclobj.Place { return u.from.Place() }

// Upstream returns the wrapped resource.
func (u *upstream) Upstream() Resource { return u.from }

// passesTo marks the resources of this package that keep no memory of their own.
func (u *upstream) passesTo() Resource { return u.from }

// missing tells whether there is no resource: nil, or a nil pointer in the
// interface. It is not for the way of every allocation.
func missing(r Resource) bool {
	v := reflect.ValueOf(r)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// noResource stands where a program gave nil.
type noResource struct{}

// Allocate implements [Resource].
func (noResource) Allocate(r Request) (Block, error) {
	return Block{}, r.refuse("nil was given for a resource; memmgr.Host() or memmgr.Default gives one")
}

// Free implements [Resource].
func (noResource) Free(b Block) {
	panic(misuse("Free", "the block at %#x cannot have come from a nil resource", b.Address))
}

// Place implements [Resource].
func (noResource) Place() *syclobj.Place { return nil }

// newCellBuffer gives a block of r an owner cell of its own.
func newCellBuffer(r Resource, request Request) (Buffer, error) {
	o, err := retainOrigin(&r)
	if err != nil {
		return Buffer{}, err
	}
	block, err := r.Allocate(request)
	if err != nil {
		o.release()
		return Buffer{}, err
	}
	c, err := owner.New(o.list)
	if err != nil {
		o.free(block)
		return Buffer{}, &OutOfMemoryError{Request: request, Place: r.Place(), Err: err}
	}
	c.Address, c.Size = block.Address, uint64(block.Size)
	c.Requested = uint64(request.Size)
	c.Place = uintptr(o.place)
	c.Resource = o.index
	setUpstreamBlock(c, block)
	c.Tag = tagNumber(request.Tag)
	c.ResetFlags(o.flags)
	noteAllocation(c)
	if request.Queue != nil {
		noteQueue(c, request.Queue)
	}
	return Buffer{ref: c.Ref()}, nil
}
