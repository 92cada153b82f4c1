package memmgr

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// holder is what the cells of one resource share: the list that dead cells come
// home to, and the facts of the memory.
type holder struct {
	resource Resource
	sync     Synchronizer
	list     *owner.List
	goPlace  *syclobj.Place
	place    unsafe.Pointer
	index    uint32
	flags    uint32
}

// holders is the table behind the resource number of a cell; entry 0 stays nil.
// It is copied on write, because every release reads it.
var holders struct {
	mu    sync.Mutex
	table atomic.Pointer[[]*holder]
	known sync.Map // Resource to *holder
}

// registered returns the holder of a resource, making it on first use.
func registered(r Resource) *holder {
	if h, ok := holders.known.Load(r); ok {
		return h.(*holder)
	}
	holders.mu.Lock()
	defer holders.mu.Unlock()
	if h, ok := holders.known.Load(r); ok {
		return h.(*holder)
	}
	h := newHolder(r)
	h.list = owner.NewList(h.drain)
	h.enter()
	holders.known.Store(r, h)
	return h
}

func isRegistered(r Resource) bool {
	_, ok := holders.known.Load(r)
	return ok
}

// addressOnly is a resource whose addresses nobody may read or write.
type addressOnly interface{ AddressOnly() bool }

// newHolder settles the facts; the list is the caller's to choose.
func newHolder(r Resource) *holder {
	h := &holder{resource: r, goPlace: r.Place()}
	h.sync, _ = As[Synchronizer](r)
	if h.goPlace != nil {
		h.place = h.goPlace.Ref()
		only, ok := As[addressOnly](r)
		if h.goPlace.HostReadable() && !(ok && only.AddressOnly()) {
			h.flags = owner.HostReadable
		}
	}
	return h
}

// enter gives the holder a number that is free; holders.mu is held.
func (h *holder) enter() {
	table := []*holder{nil}
	if old := holders.table.Load(); old != nil {
		table = append(table[:0:0], *old...)
	}
	h.index = uint32(len(table))
	for i := 1; i < len(table); i++ {
		if table[i] == nil {
			h.index = uint32(i)
		}
	}
	if int(h.index) == len(table) {
		table = append(table, nil)
	}
	table[h.index] = h
	holders.table.Store(&table)
}

// leave gives the number of a holder back that no cell names any more.
func (h *holder) leave() {
	holders.mu.Lock()
	defer holders.mu.Unlock()
	table := append([]*holder(nil), *holders.table.Load()...)
	table[h.index] = nil
	holders.table.Store(&table)
	if h.index < uint32(len(poolTable)) {
		poolTable[h.index].Store(nil)
	}
	h.list.Retire()
}

// holderOf returns the holder of a cell, nil for foreign memory.
func holderOf(c *owner.Cell) *holder {
	table := holders.table.Load()
	if table == nil || int(c.Resource) >= len(*table) {
		return nil
	}
	return (*table)[c.Resource]
}

func resourceOfCell(c *owner.Cell) Resource {
	if h := holderOf(c); h != nil {
		return h.resource
	}
	return nil
}

// placeOfCell finds the Go side of a cell's place: by resource, by the record of
// wrapped memory, or by the pointer that C left in the cell.
func placeOfCell(c *owner.Cell) *syclobj.Place {
	if h := holderOf(c); h != nil {
		return h.goPlace
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
func (h *holder) drain(c *owner.Cell) {
	noteRelease(c)
	block := Block{
		Address:   c.Address,
		Size:      uintptr(c.Size),
		Requested: uintptr(c.Requested),
		Align:     uintptr(c.Private),
		Cookie:    uint64(c.Context),
		Queue:     c.Queue(),
		Event:     lastEvent(c, h.sync),
	}
	forgetQueue(block.Queue)
	block.Queue = 0
	owner.Recycle(c)
	h.resource.Free(block)
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
