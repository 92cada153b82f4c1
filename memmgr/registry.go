package memmgr

import (
	"io"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/dropped"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/syclobj"
)

// origin is the common record of the cells of one resource: the list that dead cells
// return to, and the facts of the memory. It keeps the resource alive only while cells
// refer to it, so that a resource that its user dropped can be collected.
type origin struct {
	list    *owner.List
	goPlace *syclobj.Place
	place   unsafe.Pointer
	index   uint32
	flags   uint32
	orders  bool               // the resource has a Synchronizer
	key     any                // in resources, nil for a pool
	object  weak.Pointer[byte] // the resource, where it is a pointer

	// Always set in the origin of a pool; in another one while cells refer to it: see retain.
	resource Resource
	sync     Synchronizer

	refs    atomic.Int64 // cells, and requests in progress
	bound   atomic.Bool  // resource and sync are set
	mu      sync.Mutex
	closing bool // no new cells: remove with the last
	removed bool
}

// newOrigin reads the facts of a resource; list and number are the caller's to choose.
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

// addressOnly is a resource whose addresses cannot be read or written.
type addressOnly interface{ AddressOnly() bool }

// retain counts a cell that is about to be made of r, the origin's resource, and
// keeps r alive until release. It reports false when the origin was removed.
func (o *origin) retain(r Resource) bool {
	o.refs.Add(1)
	// unbind clears bound before it reads refs: one of the two sees the other.
	if o.bound.Load() {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.removed {
		return false
	}
	if !o.bound.Load() {
		o.resource = r
		if o.orders {
			o.sync, _ = As[Synchronizer](r)
		}
		o.bound.Store(true)
	}
	return true
}

// release undoes retain. The last call drops the reference to the resource.
func (o *origin) release() {
	if o.refs.Add(-1) != 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unbind()
}

// unbind drops the reference to the resource if no cell refers to the origin. o.mu is held.
func (o *origin) unbind() {
	o.bound.Store(false)
	if o.refs.Load() != 0 {
		o.bound.Store(o.resource != nil)
		return
	}
	o.resource, o.sync = nil, nil
	if o.closing && !o.removed {
		o.removed = true
		resources.CompareAndDelete(o.key, o)
		origins.remove(o)
	}
}

// close removes the origin as soon as no cell refers to it: the resource was closed,
// or is collected.
func (o *origin) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closing = true
	o.unbind()
}

// current returns the resource, nil while no cell refers to the origin.
func (o *origin) current() Resource {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.resource
}

// resources finds the origin of a resource that is not a pool: resourceKey to *origin.
// A resource that is a pointer is not kept alive by its entry, and the entry goes when
// it is collected. A resource that is a value has an entry until Close.
//
// The key is an address and not a weak pointer: making a weak pointer of an object
// searches all those of its span, which took 1.2 us among 20,000 resources.
var resources sync.Map

// address is the key of a resource that is a pointer. Another object may take the
// place of a collected one before the entry goes: origin.object distinguishes them.
type address struct{ kind, object uintptr }

// resourceKey returns the key of a resource, and the address of its object where it is
// a pointer.
func resourceKey(r Resource) (key any, object unsafe.Pointer) {
	if r == nil || reflect.TypeOf(r).Kind() != reflect.Pointer {
		return r, nil
	}
	words := (*[2]unsafe.Pointer)(unsafe.Pointer(&r))
	return address{uintptr(words[0]), uintptr(words[1])}, words[1]
}

// findOrigin returns the origin of a resource, nil when it has none.
func findOrigin(key any, object unsafe.Pointer) *origin {
	if v, ok := resources.Load(key); ok {
		if o := v.(*origin); unsafe.Pointer(o.object.Value()) == object {
			return o
		}
	}
	return nil
}

// addOrigin makes the origin of a resource, or returns the one that another goroutine
// has made meanwhile.
func addOrigin(r Resource, key any, object unsafe.Pointer) *origin {
	o := newOrigin(r)
	o.list, o.key = plainCells, key
	if object != nil {
		o.object = weak.Make((*byte)(object))
	}
	origins.add(o, false)
	for {
		other, there := resources.LoadOrStore(key, o)
		if !there {
			break
		}
		if other := other.(*origin); unsafe.Pointer(other.object.Value()) == object {
			origins.remove(o)
			return other
		}
		if resources.CompareAndSwap(key, other, o) {
			break
		}
	}
	if object != nil {
		runtime.AddCleanup((*byte)(object), (*origin).close, o)
	}
	return o
}

// retainOrigin returns the origin of a resource, made on first use, with one more cell
// counted. It replaces a missing resource by one that refuses.
func retainOrigin(r *Resource) (*origin, error) {
	for {
		key, object := resourceKey(*r)
		if object == nil && !reflect.ValueOf(*r).Comparable() {
			return nil, opError("New", ErrRequest, "a resource of type %T cannot be compared; pass a pointer to it", *r)
		}
		o := findOrigin(key, object)
		if o == nil {
			if missing(*r) {
				*r = noResource{}
				continue
			}
			o = addOrigin(*r, key, object)
		}
		if o.retain(*r) {
			return o, nil
		}
	}
}

// Close closes a resource, if it is an [io.Closer], and drops the package's records of
// it with the last of its memory, which stays valid. It is for resources made by the
// thousand: the records of one that is a pointer also go when it is collected. A
// resource that is used again is recorded again, unless its own Close prevents it.
func Close(r Resource) error {
	if key, object := resourceKey(r); object != nil || r != nil && reflect.ValueOf(r).Comparable() {
		if o := findOrigin(key, object); o != nil {
			resources.CompareAndDelete(key, o)
			o.close()
		}
	}
	if c, ok := r.(io.Closer); ok && !missing(r) {
		return c.Close()
	}
	return nil
}

// originTable holds the origins by the resource number of their cells, in chunks that are
// made when they are needed. Number 0 is not used; the numbers below len(poolTable) are
// for pools.
const (
	originChunk  = 1 << 10
	originChunks = 1 << 14
)

type originTable struct {
	chunks [originChunks]atomic.Pointer[[originChunk]atomic.Pointer[origin]]
	mu     sync.Mutex
	next   [2]uint32 // lowest number never used: of pools, and of other resources
	free   [2][]uint32
	inUse  int
}

var origins = originTable{next: [2]uint32{1, uint32(len(poolTable))}}

// add gives the origin a number.
func (t *originTable) add(o *origin, pool bool) {
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

// remove frees the number of an origin that no cell refers to.
func (t *originTable) remove(o *origin) {
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

// removePool removes a pool's origin.
func (o *origin) removePool() {
	if o.index < uint32(len(poolTable)) {
		poolTable[o.index].Store(nil)
	}
	origins.remove(o)
	o.list.Retire()
}

// originOf returns the origin of a cell, nil for foreign memory.
func originOf(c *owner.Cell) *origin { return originAt(c.Resource) }

// originAt returns the origin with a number, nil if there is none.
func originAt(number uint32) *origin {
	if number >= originChunks*originChunk {
		return nil
	}
	chunk := origins.chunks[number/originChunk].Load()
	if chunk == nil {
		return nil
	}
	return chunk[number%originChunk].Load()
}

func resourceOfCell(c *owner.Cell) Resource {
	if o := originOf(c); o != nil {
		return o.current()
	}
	return nil
}

// placeOfCell finds the Go side of a cell's place: by resource, by the record of
// foreign memory, or by the pointer that C left in the cell.
func placeOfCell(c *owner.Cell) *syclobj.Place {
	if o := originOf(c); o != nil {
		return o.goPlace
	}
	if home := c.Home(); home != nil && home == foreignCells {
		if p := foreign.place(foreignNumber(c)); p != nil {
			return p
		}
	}
	if c.Place == 0 {
		return syclobj.HostPlace()
	}
	return syclobj.WrapPlace(owner.Pointer(c.Place))
}

// plainCells is the home of the cells of all resources that are not pools.
var plainCells *owner.List

func init() {
	plainCells = owner.NewList(func(c *owner.Cell) { originOf(c).drain(c) })
	dropped.TakeBack = plainCells.Sync
}

// drain gives the memory of a dead cell back to its resource.
func (o *origin) drain(c *owner.Cell) {
	o.bound.Load() // the race detector cannot see that C dropped the cell after retain set it
	stacks.NoteRelease(c)
	block := upstreamBlock(c)
	if !order.Gather(o.sync, c) {
		later := block // only this copy is on the Go heap
		keeper.after(o.sync, c, func() { o.free(later) })
		return
	}
	block.Event = c.SwapPending(0)
	owner.Recycle(c)
	o.free(block)
}

// free gives a block back to the resource and ends the cell's reference to it.
func (o *origin) free(b Block) {
	o.resource.Free(b)
	o.release()
}
