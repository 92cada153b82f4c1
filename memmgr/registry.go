package memmgr

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// origin is what the cells of one resource share: the list that dead cells come
// home to, and the facts of the memory.
type origin struct {
	resource Resource
	sync     Synchronizer
	list     *owner.List
	goPlace  *syclobj.Place
	place    unsafe.Pointer
	index    uint32
	flags    uint32
}

// origins is the table behind the resource number of a cell; entry 0 stays nil.
// It is copied on write, because every release reads it.
var origins struct {
	mu    sync.Mutex
	table atomic.Pointer[[]*origin]
	known sync.Map // Resource to *origin
}

// registered returns the origin of a resource, making it on first use.
func registered(r Resource) *origin {
	if o, ok := origins.known.Load(r); ok {
		return o.(*origin)
	}
	origins.mu.Lock()
	defer origins.mu.Unlock()
	if o, ok := origins.known.Load(r); ok {
		return o.(*origin)
	}
	o := newOrigin(r)
	o.list = owner.NewList(o.drain)
	o.enter()
	origins.known.Store(r, o)
	return o
}

func isRegistered(r Resource) bool {
	_, ok := origins.known.Load(r)
	return ok
}

// addressOnly is a resource whose addresses nobody may read or write.
type addressOnly interface{ AddressOnly() bool }

// newOrigin settles the facts; the list is the caller's to choose.
func newOrigin(r Resource) *origin {
	o := &origin{resource: r, goPlace: r.Place()}
	o.sync, _ = As[Synchronizer](r)
	if o.goPlace != nil {
		o.place = o.goPlace.Ref()
		only, ok := As[addressOnly](r)
		if o.goPlace.HostReadable() && !(ok && only.AddressOnly()) {
			o.flags = owner.HostReadable
		}
	}
	return o
}

// enter gives the origin a number that is free; origins.mu is held.
func (o *origin) enter() {
	table := []*origin{nil}
	if old := origins.table.Load(); old != nil {
		table = append(table[:0:0], *old...)
	}
	o.index = uint32(len(table))
	for i := 1; i < len(table); i++ {
		if table[i] == nil {
			o.index = uint32(i)
		}
	}
	if int(o.index) == len(table) {
		table = append(table, nil)
	}
	table[o.index] = o
	origins.table.Store(&table)
}

// leave gives the number of an origin back that no cell names any more.
func (o *origin) leave() {
	origins.mu.Lock()
	defer origins.mu.Unlock()
	table := append([]*origin(nil), *origins.table.Load()...)
	table[o.index] = nil
	origins.table.Store(&table)
	if o.index < uint32(len(poolTable)) {
		poolTable[o.index].Store(nil)
	}
	o.list.Retire()
}

// originOf returns the origin of a cell, nil for foreign memory.
func originOf(c *owner.Cell) *origin {
	table := origins.table.Load()
	if table == nil || int(c.Resource) >= len(*table) {
		return nil
	}
	return (*table)[c.Resource]
}

func resourceOfCell(c *owner.Cell) Resource {
	if o := originOf(c); o != nil {
		return o.resource
	}
	return nil
}

// placeOfCell finds the Go side of a cell's place: by resource, by the record of
// wrapped memory, or by the pointer that C left in the cell.
func placeOfCell(c *owner.Cell) *syclobj.Place {
	if o := originOf(c); o != nil {
		return o.goPlace
	}
	if p := wrappedPlace(c); p != nil {
		return p
	}
	if c.Place == 0 {
		return syclobj.HostPlace()
	}
	return syclobj.PlaceFromRef(foreignPointer(c.Place))
}

// drain gives the memory of a dead cell back to its resource.
func (o *origin) drain(c *owner.Cell) {
	noteRelease(c)
	block := Block{
		Address:   c.Address,
		Size:      uintptr(c.Size),
		Requested: uintptr(c.Requested),
		Align:     uintptr(c.Private),
		Cookie:    uint64(c.Context),
		Queue:     c.Queue(),
		Event:     lastEvent(c, o.sync),
	}
	forgetQueue(block.Queue)
	block.Queue = 0
	owner.Recycle(c)
	o.resource.Free(block)
}

// lastEvent takes the event that the memory's work ends with: what was recorded,
// and for memory that was exported a barrier, because its consumer may have
// submitted work that nobody told us about. 0: nothing is pending.
func lastEvent(c *owner.Cell, s Synchronizer) uintptr {
	event := c.SwapPending(0)
	if s == nil {
		return event
	}
	if c.Flags()&owner.Exported != 0 {
		event = joinBarrier(s, c.Queue(), event)
	}
	return dropIfDone(s, event)
}

func dropIfDone(s Synchronizer, event uintptr) uintptr {
	if event != 0 && s.EventDone(event) {
		s.ReleaseEvent(event)
		return 0
	}
	return event
}

// joinBarrier returns an event for everything on the queue and for the event,
// which it takes.
func joinBarrier(s Synchronizer, queue, event uintptr) uintptr {
	barrier, err := s.Barrier(queue)
	if err != nil || barrier == 0 {
		// A queue that takes no barrier has no more work of ours either.
		return event
	}
	if event == 0 {
		return barrier
	}
	joined, err := s.Join(queue, barrier, event)
	if err != nil {
		// Waiting is the last resort, and still right.
		_ = s.WaitEvent(event)
		s.ReleaseEvent(event)
		return barrier
	}
	s.ReleaseEvent(event)
	s.ReleaseEvent(barrier)
	return joined
}
