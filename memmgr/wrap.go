package memmgr

import (
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// UnknownSize is the size of foreign memory whose size is not known.
const UnknownSize = owner.UnknownSize

// wrapped is the table of foreign memory that Go wraps, with the functions to call after
// the last reference. The Context of such a cell is the number of its record.
var wrapped wrappedTable

type wrappedRecord struct {
	memory  unsafe.Pointer // keeps Go memory reachable and off the stack
	place   *syclobj.Place
	release func()
	closer  func(p unsafe.Pointer, n uintptr)
	p       unsafe.Pointer
	n       uintptr
	next    uint32 // free record, while this one is free
}

type wrappedTable struct {
	mu      sync.Mutex
	records []wrappedRecord // number 0 stays unused
	free    uint32
	once    sync.Once
	drains  *owner.List
}

// list returns the home list of the cells. The closers are foreign code; they run in the
// goroutine that releases, or in the reaper.
func (t *wrappedTable) list() *owner.List {
	t.once.Do(func() {
		t.records = make([]wrappedRecord, 1, 64)
		t.drains = owner.NewList(t.drain)
	})
	return t.drains
}

// add writes a record field by field: a copy of a whole record would wait for the stores
// that built it.
func (t *wrappedTable) add(memory unsafe.Pointer, place *syclobj.Place, o *WrapOptions) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.free
	if n == 0 {
		n = uint32(len(t.records))
		t.records = append(t.records, wrappedRecord{})
	}
	r := &t.records[n]
	t.free = r.next
	r.memory, r.place, r.release = memory, place, o.Release
	if o.Closer != nil {
		r.closer, r.p, r.n = o.Closer, o.P, o.N
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

// WrapOptions describe foreign memory and its end.
type WrapOptions struct {
	// Place is context, device and kind of the memory, nil for host memory. The buffer
	// retains it.
	Place *syclobj.Place
	// GivePlace makes the buffer take over the caller's reference of Place instead, unless
	// Wrap fails. This saves two atomic operations.
	GivePlace bool

	// Release, which may be nil, is called once, on any goroutine, after the last reference
	// was released and pending work is complete. It must not wait for the release of
	// another buffer.
	Release func()
	// Closer, which may be nil, is called with P and N after Release. It serves callers
	// that wrap often, because it needs no closure.
	Closer func(p unsafe.Pointer, n uintptr)
	P      unsafe.Pointer
	N      uintptr
}

// Wrap makes a buffer of foreign memory: size bytes at p, or [UnknownSize]. The caller
// releases it. The buffer keeps Go memory reachable.
//
// It fails with an [*OpError] of kind ErrRequest for a nil address with a size. On error it
// takes nothing over and calls nothing.
func Wrap(p unsafe.Pointer, size uint64, o WrapOptions) (Buffer, error) {
	if p == nil && size != 0 {
		return Buffer{}, opError("Wrap", ErrRequest, "a nil address with a size of %d bytes", size)
	}
	place := o.Place
	if place == nil {
		place, o.GivePlace = syclobj.HostPlace(), false
	}
	c, err := owner.New(wrapped.list())
	if err != nil {
		return Buffer{}, &OutOfMemoryError{Request: Request{Size: uintptr(size)}, Place: place, Err: err}
	}
	c.Address, c.Size = uintptr(p), size
	c.Requested = size
	c.Place = uintptr(place.Ref())
	setWrapRecord(c, wrapped.add(p, place, &o))
	if !o.GivePlace {
		place.Retain()
	}
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
	return wrapped.place(wrapRecord(c))
}

func (t *wrappedTable) drain(c *owner.Cell) {
	noteRelease(c)
	queue := c.Queue()
	defer forgetQueue(queue) // a barrier may have to go on it first
	r := t.take(wrapRecord(c))
	if c.Pending() != 0 || c.Flags()&owner.Exported != 0 {
		s := events{}
		if r.place.Ref() != nil {
			s.queue = placeQueue(r.place)
		}
		if work := lastWorkOf(c, s); !work.over() {
			owner.Recycle(c)
			keeper.after(work, r.end)
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
	if r.closer != nil {
		r.closer(r.p, r.n)
	}
	r.place.Release()
}
