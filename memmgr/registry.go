package memmgr

import (
	"cmp"
	"context"
	"errors"
	"io"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/account"
	"github.com/usmbridge/usmbridge/memmgr/internal/dropped"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/pending"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/syclobj"
)

// pools has the open pools, and those whose memory is in use, by their numbers. A cell has the number of its pool.
// Number 0 is no pool.
var pools = struct {
	mu  sync.Mutex
	all []*Pool
}{all: make([]*Pool, 1)}

// poolTable repeats the first pools, for Release.
var poolTable [1024]atomic.Pointer[Pool]

// addPool gives a pool the lowest number that is free.
func addPool(p *Pool) {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	n := 1 + slices.Index(pools.all[1:], nil)
	if n == 0 {
		n = len(pools.all)
		pools.all = append(pools.all, nil)
	}
	setPool(n, p)
	p.number = uint32(n)
}

// removePool frees the number of a pool to which no cell refers.
func removePool(p *Pool) {
	pools.mu.Lock()
	setPool(int(p.number), nil)
	pools.mu.Unlock()
	p.cells.Retire()
}

// setPool sets the pool with a number. pools.mu is held.
func setPool(n int, p *Pool) {
	pools.all[n] = p
	if n < len(poolTable) {
		poolTable[n].Store(p)
	}
}

// poolAt returns the pool with a number, nil if there is none.
func poolAt(number uint32) *Pool {
	if number < uint32(len(poolTable)) {
		return poolTable[number].Load()
	}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if int64(number) < int64(len(pools.all)) {
		return pools.all[number]
	}
	return nil
}

// noPool is the number in the cells of resources that are not pools.
const noPool = ^uint32(0)

// record is what Go knows of the memory of a cell that belongs to no pool: memory of another resource, and
// foreign memory. It keeps the resource alive, or the Go memory.
type record struct {
	// place is stored last, and loaded before the other fields are read: C may drop the cell, which the race detector
	// does not see, and reports read the record beside its maker.
	place    atomic.Pointer[syclobj.Place]
	resource Resource // nil for foreign memory
	memory   unsafe.Pointer
	release  func()
}

// records has the record of each cell at the index of the cell, in chunks that are made when they are needed.
const (
	recordChunk  = 1 << 12
	recordChunks = 1 << 14
)

var records [recordChunks]atomic.Pointer[[recordChunk]record]

// recordOf returns the record of a cell.
func recordOf(c *owner.Cell) *record {
	chunk := &records[c.Index()/recordChunk]
	if chunk.Load() == nil {
		chunk.CompareAndSwap(nil, new([recordChunk]record))
	}
	return &chunk.Load()[c.Index()%recordChunk]
}

// The homes of the cells of resources that are not pools, and of foreign memory. The functions that end foreign memory
// are foreign code: they run in the goroutine that releases, or in the reaper.
var plainCells, foreignCells *owner.List

func init() {
	plainCells, foreignCells = owner.NewList(drainPlain), owner.NewList(drainForeign)
	dropped.TakeBack = plainCells.Sync
	owner.Shown = owner.NewList(drainShown)
	owner.Settle = func() bool {
		foreignCells.Sync()
		owner.Shown.Sync()
		return settleFrees(context.Background())
	}
	owner.SettleEnded = func() {
		owner.Shown.Sync()
		keeper.frees.SettleEnded()
	}
}

// Close closes a resource, if it is an [io.Closer]. Its memory stays valid.
func Close(r Resource) error {
	if c, ok := r.(io.Closer); ok && !missing(r) {
		return c.Close()
	}
	return nil
}

// addressOnly is a resource whose addresses cannot be read or written.
type addressOnly interface{ AddressOnly() bool }

// interprocess is a resource whose memory other processes can access.
type interprocess interface{ Interprocess() bool }

// flagsOf returns the flags of the cells of a resource.
func flagsOf(r Resource, place *syclobj.Place) (flags uint32) {
	if place == nil {
		return 0
	}
	if shared, ok := As[interprocess](r); ok && shared.Interprocess() && !place.IsHost() {
		flags |= owner.Observers
	}
	if !place.HostReadable() {
		return flags
	}
	if only, ok := As[addressOnly](r); ok && only.AddressOnly() {
		return flags
	}
	return flags | owner.HostReadable
}

// newCellBuffer allocates a block of a resource that is not a pool and makes its cell.
func newCellBuffer(r Resource, request Request) (Buffer, error) {
	if w, ok := r.(*waiting); ok { // the resource below makes the cell
		return New(w.Resource, w.with(request))
	}
	if r = present(r); !reflect.ValueOf(r).Comparable() {
		return Buffer{}, opError("New", ErrRequest, "a resource of type %T cannot be compared; pass a pointer to it", r)
	}
	keeper.frees.SettleSoon(cmp.Or(request.Context, context.Background()), pending.CUDASlack)
	block, err := allocateFrom(r, request)
	if errors.Is(err, ErrOutOfMemory) && keeper.frees.Unsettled() && settleFrees(request.Context) {
		block, err = allocateFrom(r, request)
	}
	if err != nil {
		return Buffer{}, err
	}
	c, err := owner.New(plainCells)
	if err != nil {
		r.Free(block)
		return Buffer{}, &OutOfMemoryError{Request: request, Place: r.Place(), Err: err}
	}
	place := r.Place()
	c.Address, c.Size = block.Address, uint64(block.Size)
	c.Requested = uint64(request.Size)
	if place != nil {
		c.Place = uintptr(place.Ref())
	}
	setUpstreamBlock(c, block)
	of := recordOf(c)
	of.resource = r
	of.place.Store(place)
	c.Tag = account.TagNumber(request.Tag)
	c.ResetFlags(flagsOf(r, place))
	stacks.NoteAllocation(c)
	c.Resource = noPool // last: from now on reports list the cell
	if request.Queue != nil {
		order.NoteQueue(c, request.Queue)
	}
	return Buffer{ref: c.Ref()}, nil
}

// drainPlain gives the memory of a dead cell back to its resource.
func drainPlain(c *owner.Cell) {
	stacks.NoteRelease(c)
	of := recordOf(c)
	of.place.Swap(nil)
	r := of.resource
	of.resource = nil
	block := upstreamBlock(c)
	if c.Pending() != 0 || c.Flags()&order.ShownFlags != 0 {
		if s, _ := As[Synchronizer](r); !order.Gather(s, c) {
			later := block // only this copy is on the Go heap
			keeper.after(s, c, func() { r.Free(later) })
			return
		}
	}
	order.DropQueues(c)
	block.Event = c.SwapPending(0)
	owner.Recycle(c)
	r.Free(block)
}

// drainForeign ends foreign memory: it calls the function of its owner.
func drainForeign(c *owner.Cell) {
	stacks.NoteRelease(c)
	of := recordOf(c)
	place := of.place.Swap(nil)
	end, worksIn := foreignEnd{of.memory, place, of.release}, place
	of.memory, of.release = nil, nil
	if c.Flags()&owner.Alias != 0 {
		// The work of the alias is in the record, which Release keeps alive.
		worksIn = placeOfCell(c.Record())
		event, _ := order.CopyPending(c.Record())
		c.SwapPending(event)
		c.ClearFlags(owner.Alias)
	}
	if c.Pending() != 0 || c.Flags()&order.ShownFlags != 0 {
		s := order.EventsOf(worksIn)
		if !order.Gather(s, c) || c.Pending() != 0 {
			keeper.after(s, c, end.call)
			return
		}
	}
	order.DropQueues(c)
	owner.Recycle(c)
	end.call()
}

// drainShown releases the cell to which a dead cell of [owner.Shown] refers, once the work on the memory has ended.
func drainShown(c *owner.Cell) {
	end := owner.CellOf(owner.Pointer(c.Context))
	s := order.EventsAt(c.Place)
	ended := order.Empty{}.Ended(s, c) || order.Gather(s, c)
	if !ended || c.Pending() != 0 {
		keeper.after(s, c, end.Release)
		return
	}
	order.DropQueues(c)
	owner.Recycle(c)
	end.Release()
}

// foreignEnd is what ends foreign memory.
type foreignEnd struct {
	memory  unsafe.Pointer
	place   *syclobj.Place
	release func()
}

func (e foreignEnd) call() {
	// Deferred, because release may panic.
	defer e.place.Release()
	if e.release != nil {
		e.release()
	}
}

// ownerOf returns the resource of a cell that is in use, nil for foreign memory, and the Go side of its place.
func ownerOf(c *owner.Cell) (Resource, *syclobj.Place) {
	if p := poolAt(c.Resource); p != nil {
		return p, p.place
	}
	return unpooledOwner(c, c.Place)
}

// unpooledOwner is ownerOf for a cell of no pool, with its place.
func unpooledOwner(c *owner.Cell, place uintptr) (Resource, *syclobj.Place) {
	if home := c.Home(); home != nil && (home == plainCells || home == foreignCells) {
		of := recordOf(c)
		place := of.place.Load()
		return of.resource, place
	}
	if place == 0 {
		return nil, syclobj.HostPlace()
	}
	return nil, syclobj.WrapPlace(owner.Pointer(place)) // C made the cell
}

func placeOfCell(c *owner.Cell) *syclobj.Place {
	_, place := ownerOf(c)
	return place
}
