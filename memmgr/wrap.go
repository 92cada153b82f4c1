package memmgr

import (
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// wrapped is the table of foreign memory that Go wraps: what to call when the
// last reference goes. A cell's context is the number of its record.
var wrapped wrappedTable

type wrappedRecord struct {
	memory  unsafe.Pointer // keeps Go memory reachable and off the stack
	place   *syclobj.Place
	release func()
	closer  Closer
	next    uint32 // free record, while this one is free
}

// Closer gives foreign memory back as [Wrap]'s release function does, without a
// closure to allocate: Func is called with P and N. The zero Closer does nothing.
type Closer struct {
	Func func(p unsafe.Pointer, n uintptr)
	P    unsafe.Pointer
	N    uintptr
}

type wrappedTable struct {
	mu      sync.Mutex
	records []wrappedRecord // number 0 stays unused
	free    uint32
	once    sync.Once
	drains  *owner.List
}

// list returns the home of wrapped memory. Its closers are foreign code that
// run in the goroutine that releases, or in the reaper.
func (t *wrappedTable) list() *owner.List {
	t.once.Do(func() {
		t.records = make([]wrappedRecord, 1, 64)
		t.drains = owner.NewList(t.drain)
	})
	return t.drains
}

// add writes a record field by field: one that is built and then copied whole
// makes the copy wait for the stores.
func (t *wrappedTable) add(memory unsafe.Pointer, place *syclobj.Place, release func(), c *Closer) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.free
	if n == 0 {
		n = uint32(len(t.records))
		t.records = append(t.records, wrappedRecord{})
	}
	r := &t.records[n]
	t.free = r.next
	r.memory, r.place, r.release = memory, place, release
	if c != nil {
		r.closer.Func, r.closer.P, r.closer.N = c.Func, c.P, c.N
	}
	return n
}

func (t *wrappedTable) take(n uint32) wrappedRecord {
	t.mu.Lock()
	r := t.records[n]
	t.records[n] = wrappedRecord{next: t.free}
	t.free = n
	t.mu.Unlock()
	return r
}

func (t *wrappedTable) place(n uint32) *syclobj.Place {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.records[n].place
}

// Wrap makes a buffer of memory that somebody else allocated. place tells what
// memory it is; nil means plain host memory. release, which may be nil, is
// called once, on any goroutine, after the last reference is gone and pending
// work is done; it may take a while, but must not wait for another buffer's
// release. The buffer holds a reference to the place, and keeps Go memory
// reachable.
//
// It fails with a [*RequestError] for a nil address with a size.
func Wrap(p unsafe.Pointer, size uint64, place *syclobj.Place, release func()) (Buffer, error) {
	if place == nil {
		place = syclobj.HostPlace()
	}
	b, err := WrapPlaced(p, size, place, release)
	if err == nil {
		place.Retain()
	}
	return b, err
}

// WrapPlaced is [Wrap] for a place that the caller holds a reference of: on
// success the buffer takes it over, on error it stays the caller's. It saves two
// atomic operations where the place was looked up for this memory alone.
func WrapPlaced(p unsafe.Pointer, size uint64, place *syclobj.Place, release func()) (Buffer, error) {
	return wrap(p, size, place, release, nil)
}

// WrapClosed is [WrapPlaced] with a [Closer], for callers that wrap often.
func WrapClosed(p unsafe.Pointer, size uint64, place *syclobj.Place, c Closer) (Buffer, error) {
	return wrap(p, size, place, nil, &c)
}

func wrap(p unsafe.Pointer, size uint64, place *syclobj.Place, release func(), closer *Closer) (Buffer, error) {
	if p == nil && size != 0 {
		return Buffer{}, &RequestError{Request: Request{Size: uintptr(size)}, Reason: "memmgr.Wrap was given a nil address with a size"}
	}
	c, err := owner.New(wrapped.list())
	if err != nil {
		return Buffer{}, &OutOfMemoryError{Request: Request{Size: uintptr(size)}, Place: place, Err: err}
	}
	c.SetData(p, size)
	c.SetRequested(size)
	c.SetPlace(place.Ref())
	c.SetContext(uintptr(wrapped.add(p, place, release, closer)))
	flags := owner.Foreign
	if place.HostReadable() {
		flags |= owner.HostReadable
	}
	c.ResetFlags(flags)
	noteAllocation(c)
	return Buffer{ref: c.Ref()}, nil
}

// wrappedPlace returns the place of a cell that Wrap made, nil for others.
func wrappedPlace(c *owner.Cell) *syclobj.Place {
	if c.Home() == nil || c.Home() != wrapped.list() {
		return nil
	}
	return wrapped.place(uint32(c.Context()))
}

func (t *wrappedTable) drain(c *owner.Cell) {
	noteRelease(c)
	queue := c.Queue()
	defer forgetQueue(queue) // a barrier may have to go on it first
	r := t.take(uint32(c.Context()))
	if c.Pending() != 0 || c.Flags()&owner.Exported != 0 {
		s := events{}
		if r.place.Ref() != nil {
			s.queue = placeQueue(r.place)
		}
		if event := lastEvent(c, s); event != 0 {
			owner.Recycle(c)
			later.after(s, event, r.end)
			return
		}
	}
	owner.Recycle(c)
	r.end()
}

func (r wrappedRecord) end() {
	if r.release != nil {
		r.release()
	}
	if r.closer.Func != nil {
		r.closer.Func(r.closer.P, r.closer.N)
	}
	r.place.Release()
}
