package memmgr

import (
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/dropped"
	"github.com/usmbridge/usmbridge/syclobj"
)

// origin is what the cells of one resource share: the list that dead cells come
// home to, and the facts of the memory. It keeps the resource itself alive only while
// cells name it, so that a resource that its user dropped can be collected.
type origin struct {
	list    *owner.List
	goPlace *syclobj.Place
	place   unsafe.Pointer
	index   uint32
	flags   uint32
	orders  bool // the resource has a Synchronizer
	id      identity
	object  weak.Pointer[byte] // what id is the address of

	// A pool's origin has these for good, others while cells name it: see hold.
	resource Resource
	sync     Synchronizer

	live   atomic.Int64 // cells, and requests under way
	held   atomic.Bool  // resource and sync are set
	mu     sync.Mutex
	ending bool // no new cells: leave with the last
	left   bool
}

// newOrigin settles the facts; list and number are the caller's to choose.
func newOrigin(r Resource) *origin {
	o := &origin{goPlace: r.Place()}
	_, o.orders = As[Synchronizer](r)
	if o.goPlace != nil {
		o.place = o.goPlace.Ref()
		only, ok := As[addressOnly](r)
		if o.goPlace.HostReadable() && !(ok && only.AddressOnly()) {
			o.flags = owner.HostReadable
		}
	}
	return o
}

// addressOnly is a resource whose addresses nobody may read or write.
type addressOnly interface{ AddressOnly() bool }

// hold counts a cell that is about to be made of r, the origin's resource, and keeps
// that alive until letGo. It reports false when the origin has left.
func (o *origin) hold(r Resource) bool {
	o.live.Add(1)
	// letGo clears held before it looks at live: one of the two sees the other.
	if o.held.Load() {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left {
		return false
	}
	if !o.held.Load() {
		o.resource = r
		if o.orders {
			o.sync, _ = As[Synchronizer](r)
		}
		o.held.Store(true)
	}
	return true
}

// letGo ends hold. The last one lets go of the resource.
func (o *origin) letGo() {
	if o.live.Add(-1) != 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.release()
}

// release lets go of the resource if no cell names it. o.mu is held.
func (o *origin) release() {
	o.held.Store(false)
	if o.live.Load() != 0 {
		o.held.Store(o.resource != nil)
		return
	}
	o.resource, o.sync = nil, nil
	if o.ending && !o.left {
		o.left = true
		known.forget(o)
		origins.leave(o)
	}
}

// end has the origin leave when no cell names it: the resource was closed, or is
// collected.
func (o *origin) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	o.release()
}

// current returns the resource, nil while no cell names it.
func (o *origin) current() Resource {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.resource
}

// Origins stand in a table by the resource number of their cells, in chunks that are
// made as they are needed. Number 0 stays unused; those that [poolTable] knows are
// for pools.
const (
	originChunk  = 1 << 10
	originChunks = 1 << 14
)

type originTable struct {
	chunks [originChunks]atomic.Pointer[[originChunk]atomic.Pointer[origin]]
	mu     sync.Mutex
	next   [2]uint32 // number never used yet; of pools, and of others
	free   [2][]uint32
	inUse  int
}

var origins = originTable{next: [2]uint32{1, uint32(len(poolTable))}}

// enter gives the origin a number.
func (t *originTable) enter(o *origin, pool bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := 1
	if pool && (len(t.free[0]) > 0 || t.next[0] < uint32(len(poolTable))) {
		kind = 0
	}
	if last := len(t.free[kind]) - 1; last >= 0 {
		o.index = t.free[kind][last]
		t.free[kind] = t.free[kind][:last]
	} else {
		if t.next[kind] == originChunks*originChunk {
			panic(owner.ErrNoMemory) // as for cells, of which each would have one
		}
		o.index = t.next[kind]
		t.next[kind]++
	}
	chunk := &t.chunks[o.index/originChunk]
	if chunk.Load() == nil {
		chunk.Store(new([originChunk]atomic.Pointer[origin]))
	}
	chunk.Load()[o.index%originChunk].Store(o)
	t.inUse++
}

// leave gives the number of an origin back that no cell names any more.
func (t *originTable) leave(o *origin) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chunks[o.index/originChunk].Load()[o.index%originChunk].Store(nil)
	kind := 1
	if o.index < uint32(len(poolTable)) {
		kind = 0
	}
	t.free[kind] = append(t.free[kind], o.index)
	t.inUse--
}

// leave ends a pool's origin.
func (o *origin) leave() {
	if o.index < uint32(len(poolTable)) {
		poolTable[o.index].Store(nil)
	}
	origins.leave(o)
	o.list.Retire()
}

// originOf returns the origin of a cell, nil for foreign memory.
func originOf(c *owner.Cell) *origin {
	if c.Resource >= originChunks*originChunk {
		return nil
	}
	chunk := origins.chunks[c.Resource/originChunk].Load()
	if chunk == nil {
		return nil
	}
	return chunk[c.Resource%originChunk].Load()
}

func resourceOfCell(c *owner.Cell) Resource {
	if o := originOf(c); o != nil {
		return o.current()
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

// plainCells is the home of the cells of all resources that are no pools.
var plainCells = sync.OnceValue(func() *owner.List {
	return owner.NewList(func(c *owner.Cell) { originOf(c).drain(c) })
})

func init() { dropped.TakeBack = func() { plainCells().Sync() } }

// drain gives the memory of a dead cell back to its resource.
func (o *origin) drain(c *owner.Cell) {
	o.held.Load() // hold has set it: the race detector does not see that C's drop comes after that
	noteRelease(c)
	block := Block{
		Address:   c.Address,
		Size:      uintptr(c.Size),
		Requested: uintptr(c.Requested),
		Align:     uintptr(c.Private),
		Cookie:    uint64(c.Context),
	}
	work := lastWorkOf(c, o.sync)
	forgetQueue(c.Queue())
	owner.Recycle(c)
	if !work.single() {
		keeper.after(work, func() { o.free(block) })
		return
	}
	block.Event = work.events[0]
	o.free(block)
}

// free gives a block back to the resource, and the cell's part in keeping that.
func (o *origin) free(b Block) {
	o.resource.Free(b)
	o.letGo()
}
