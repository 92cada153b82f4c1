package memmgr

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/syclobj"
)

// DefaultAlign is the alignment in bytes of a request with Align 0.
const DefaultAlign = 256

// Request describes the memory to allocate.
type Request struct {
	// Size in bytes. Memory of size 0 has a valid address of its own.
	Size uintptr
	// Align is a power of two in bytes; 0 means [DefaultAlign].
	Align uintptr
	// Queue is the queue that uses the memory first, nil if unknown. A pool may then
	// reuse memory whose pending work is on the same in-order queue.
	Queue *syclobj.Queue
	// Tag names the purpose of the memory in statistics and reports. A process has at most 1024
	// tags: further ones count as "other".
	Tag string
	// Context makes the request wait for memory until the context ends, if the resource
	// can wait ([Pool]). If it is nil, a request that cannot be served fails immediately.
	// [Waiting] sets it for callers that make no Request themselves.
	//
	// The request waits for room under the limits, for device work to complete, or for idle
	// memory of other pools. Of those that can be served the oldest is first. A large
	// request does not stop small ones, and small ones do not starve it: after a while the pool
	// reserves segments for it. A request that no limit could ever allow fails immediately.
	Context context.Context
}

// Alignment returns Align, or DefaultAlign if it is 0.
func (r *Request) Alignment() uintptr {
	if r.Align == 0 {
		return DefaultAlign
	}
	return r.Align
}

// Check returns an [*OpError] of kind ErrRequest for a request that no resource can serve.
func (r *Request) Check() error {
	if r.Align&(r.Align-1) != 0 {
		return r.refuse("the alignment must be a power of two")
	}
	if r.Alignment() > maxSize || r.Size > maxSize-r.Alignment() {
		return r.refuse("size and alignment are together larger than %d bytes, the most that can be addressed", maxSize)
	}
	return nil
}

// refuse returns the error of an invalid request.
func (r *Request) refuse(format string, args ...any) error {
	return opError("Allocate", ErrRequest, "%d bytes aligned to %d: %s", r.Size, r.Alignment(), fmt.Sprintf(format, args...))
}

// maxSize leaves room for rounding below the largest int.
const maxSize = uintptr(1)<<(bits.UintSize-2) - 1

// Block is memory that Allocate returns and Free takes, as a plain value. Free needs the same
// address, size, requested size and cookie.
type Block struct {
	// Address of the first byte, aligned as asked.
	Address uintptr
	// Size is the usable size in bytes, at least Requested.
	Size uintptr
	// Requested is the size of the request in bytes.
	Requested uintptr
	// Align is the alignment of the request in bytes.
	Align uintptr
	// Cookie is private to the resource.
	Cookie uint64
	// Queue is a borrowed reference of the queue of last use (sycl::queue*), 0 for none.
	// The caller of Free sets it.
	Queue uintptr
	// Event is an owned reference of the event of the last work (sycl::event*), 0 for
	// none. The caller of Free sets it; Free takes it over.
	Event uintptr
}

// Resource is a source of memory of one place. It is a small interface, as
// http.RoundTripper is, so that one resource can wrap another. A resource is comparable:
// [New] refuses a resource that is not. A wrapper also has the method Upstream() Resource, by which [As]
// finds the abilities of the wrapped resource. Methods are safe for concurrent use.
type Resource interface {
	// Allocate returns memory for the request. It fails with an [*OpError] for an invalid
	// request and with an [*OutOfMemoryError] when memory ran out. Without an error the block
	// has an address that is aligned as asked, and at least the requested size. Pools, limits and
	// [New] give other blocks back and fail with an [*OpError] of kind ErrRequest.
	Allocate(Request) (Block, error)

	// Free frees a block and takes over its pending event. The memory is not reused before
	// the event is complete, and Free does not wait for it. A free of a block that is not
	// in use panics with a [*UseError] where it is detected.
	Free(Block)

	// Place returns context, device and kind of the memory, borrowed from the resource.
	Place() *syclobj.Place
}

// adopter is a resource that owns the values made of its memory, such as the memory of an
// arena (package arena). Code that makes an owning value of its memory hands it over with
// Adopt.
type adopter interface {
	// Adopt takes over the duty to release x, which is comparable. It fails with an error
	// of kind [ErrClosed] when the resource was closed; then x stays the caller's. Valid
	// reports whether x was not released yet.
	Adopt(x owned) error
}

type owned = interface {
	Release()
	Valid() bool
}

// Discarder is a resource whose memory lies in pages that can go back to the
// system while the memory is allocated: [Host], and [USM] of a device that uses memory of
// the process.
type Discarder interface {
	// Discard returns the pages of a range of allocated memory to the system. Address and
	// size are in bytes and multiples of the page size. The address stays allocated; the
	// contents are undefined until they are written. The range must not be in use during
	// the call. It fails with an error that wraps errors.ErrUnsupported if the memory has
	// no such pages.
	Discard(address, size uintptr) error
}

// Synchronizer orders work on the memory of a resource. A resource with memory that device work uses
// implements it, as memtest.Simulated does. Its methods are described by
// "go doc github.com/usmbridge/usmbridge/memmgr/internal/order.Synchronizer".
type Synchronizer = order.Synchronizer

// allocateFrom asks a resource, which may be a user's own, for memory. It gives a block that does not serve the request
// back to the resource and returns an error.
func allocateFrom(from Resource, r Request) (Block, error) {
	b, err := from.Allocate(r)
	if err != nil {
		return Block{}, err
	}
	end := b.Address + r.Size
	if b.Address == 0 || b.Address&(r.Alignment()-1) != 0 || b.Size < r.Size || end < b.Address {
		if b.Address != 0 {
			from.Free(b)
		}
		return Block{}, opError("Allocate", ErrRequest,
			"%T, or a resource below it, returned %d bytes at %#x for %d bytes aligned to %d; correct its Allocate",
			from, b.Size, b.Address, r.Size, r.Alignment())
	}
	b.Requested = max(b.Requested, r.Size) // limits subtract it in Free
	return b, nil
}

// As returns the first value of type T among r, its upstream, and so on.
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

// FreeAfter calls free with the block when the event of the block is complete: immediately
// if there is none, else on another goroutine. s is the synchronizer of the event, nil for
// that of the SYCL runtime. Resources that do not reuse memory implement Free with it. It waits
// for the event only if there is no memory for an owner cell.
func FreeAfter(b Block, s Synchronizer, free func(Block)) {
	if s == nil {
		s = order.System
	}
	event := b.Event
	b.Event = 0
	if event != 0 && !s.EventDone(event) {
		if c, err := owner.NewDead(nil); err == nil {
			c.SwapPending(event)
			later := b // only this copy is on the Go heap
			keeper.after(s, c, func() { free(later) })
			return
		}
		_ = s.WaitEvent(event) // there is no memory for a cell
	}
	if event != 0 {
		s.ReleaseEvent(event)
	}
	free(b)
}

// Waiting returns a resource over r whose requests wait for memory until the context ends: its
// requests have [Request.Context] set, unless they have one of their own. Buffers belong to r.
func Waiting(ctx context.Context, r Resource) Resource {
	return &waiting{present(r), ctx}
}

type waiting struct {
	Resource
	ctx context.Context
}

// Adopt gives x to the resource that waits, if that is an adopter.
func (w *waiting) Adopt(x owned) error {
	if a, ok := w.Resource.(adopter); ok {
		return a.Adopt(x)
	}
	return nil
}

// Upstream returns the resource that waits.
func (w *waiting) Upstream() Resource { return w.Resource }

// Allocate implements [Resource].
func (w *waiting) Allocate(r Request) (Block, error) { return w.Resource.Allocate(w.with(r)) }

func (w *waiting) with(r Request) Request {
	if r.Context == nil {
		r.Context = w.ctx
	}
	return r
}

// present returns the resource, or one that refuses every request if it is missing.
func present(r Resource) Resource {
	if missing(r) {
		return noResource{}
	}
	return r
}

// missing reports whether r is nil or a nil pointer in the interface. It is too slow for
// the fast path.
func missing(r Resource) bool {
	v := reflect.ValueOf(r)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// noResource replaces a nil resource. Its Allocate returns an error.
type noResource struct{}

// Allocate implements [Resource].
func (noResource) Allocate(r Request) (Block, error) {
	return Block{}, r.refuse("the resource is nil; use memmgr.Host() or memmgr.Default")
}

// Free implements [Resource].
func (noResource) Free(b Block) {
	panic(misuse("Free", "%#x: not allocated from a nil resource", b.Address))
}

// Place implements [Resource].
func (noResource) Place() *syclobj.Place { return nil }

// usage counts the blocks of a resource that are in use.
type usage struct{ blocks, bytes atomic.Int64 }

func (u *usage) add(blocks, bytes int64) {
	u.blocks.Add(blocks)
	u.bytes.Add(bytes)
}

// InUse returns the number of blocks in use and their bytes.
func (u *usage) InUse() (blocks, bytes int64) { return u.blocks.Load(), u.bytes.Load() }

// hostResource allocates whole pages of the process.
type hostResource struct{ usage }

var host hostResource

// Host returns the resource of the host backend: zeroed pages of the process, mapped by
// each allocation and unmapped by each free. A [Pool] above it makes small allocations
// cheap. There is one per process.
func Host() Resource { return &host }

// Place implements [Resource].
func (*hostResource) Place() *syclobj.Place { return syclobj.HostPlace() }

// Allocate implements [Resource]. The memory is zeroed.
func (r *hostResource) Allocate(request Request) (Block, error) {
	if err := request.Check(); err != nil {
		return Block{}, err
	}
	size := sysmem.RoundUp(max(request.Size, 1), sysmem.PageSize)
	address, err := sysmem.Map(size, request.Alignment())
	if err != nil {
		return Block{}, &OutOfMemoryError{Request: request, Place: syclobj.HostPlace(), Rounded: uint64(size), Err: err}
	}
	r.add(1, int64(size))
	return Block{
		Address: address, Size: size, Requested: request.Size, Align: request.Alignment(),
	}, nil
}

// Free implements [Resource].
func (r *hostResource) Free(b Block) { FreeAfter(b, nil, r.unmap) }

func (r *hostResource) unmap(b Block) {
	if err := sysmem.Unmap(b.Address, b.Size); err != nil {
		panic(misuse("Free", "%d bytes at %#x of the host resource: %w", b.Size, b.Address, err))
	}
	r.add(-1, -int64(b.Size))
}

// Discard implements [Discarder]: the pages are zero when they are next touched.
func (r *hostResource) Discard(address, size uintptr) error {
	if err := sysmem.Discard(address, size); err != nil {
		return &OpError{Op: "Discard", Place: r.Place(), Err: err}
	}
	return nil
}

// usmResource allocates unified shared memory of one context, device and kind from the
// SYCL runtime.
type usmResource struct {
	order.Events
	usage
	place  *syclobj.Place
	kind   syclobj.USMKind
	total  uint64
	err    error
	closed atomic.Bool

	pages struct { // see Discard
		mu    sync.Mutex
		known bool
		err   error
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
		Events: order.EventsOf(place),
		place:  place, kind: kind, total: q.Device().Info().GlobalMemSize,
	}
}

// Place implements [Resource]; nil if the resource could not be made.
func (r *usmResource) Place() *syclobj.Place { return r.place }

// DeviceTotal returns the bytes of memory of the device.
func (r *usmResource) DeviceTotal() uint64 { return r.total }

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
	address, err := sysmem.AllocUSM(r.place, size, request.Alignment())
	if err != nil {
		r.place.Release()
		if errors.Is(err, syclobj.ErrAllocation) {
			err = &OutOfMemoryError{Request: request, Place: r.place, Rounded: uint64(size), DeviceTotal: r.total, Err: err}
		}
		return Block{}, err
	}
	r.add(1, int64(size))
	return Block{
		Address: address, Size: size, Requested: request.Size, Align: request.Alignment(),
	}, nil
}

// Free implements [Resource].
func (r *usmResource) Free(b Block) { FreeAfter(b, r, r.free) }

func (r *usmResource) free(b Block) {
	err := sysmem.FreeUSM(r.place, b.Address)
	if errors.Is(err, syclobj.ErrAsync) { // the driver refuses all calls for the device; the memory is never used again
		backgroundFailed("Free", &OpError{Op: "Free", Place: r.place, Err: err})
		return
	}
	if err != nil {
		panic(misuse("Free", "%d bytes at %#x of %v: %w", b.Size, b.Address, r.place, err))
	}
	r.add(-1, -int64(b.Size))
	upstreamFrees.Add(1)
	r.place.Release()
}

// canDiscard tries once whether pages can be returned. An attempt that failed for another
// reason, such as the lack of memory, decides nothing.
func (r *usmResource) canDiscard() error {
	r.pages.mu.Lock()
	defer r.pages.mu.Unlock()
	if !r.pages.known {
		if r.pages.err = r.err; r.err == nil {
			r.pages.err = sysmem.TryDiscard(r.place)
		}
		r.pages.known = r.pages.err == nil || errors.Is(r.pages.err, errors.ErrUnsupported)
	}
	return r.pages.err
}

// Discard implements [Discarder]. The first call tries it on memory of its own, because
// SYCL does not report whether it works.
func (r *usmResource) Discard(address, size uintptr) error {
	err := r.canDiscard()
	if err == nil {
		err = sysmem.Discard(address, size)
	}
	if err != nil {
		return &OpError{Op: "Discard", Place: r.place, Err: err}
	}
	return nil
}
