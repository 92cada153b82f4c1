package memmgr

import (
	"context"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/syclobj"
)

// New allocates memory from a resource and returns a buffer with one reference, which the
// caller releases. The memory is not initialized, unless the resource does so. Errors:
// [*OpError] of kind ErrRequest or ErrClosed, [*OutOfMemoryError], and the resource's own.
//
// The body is the fast path of a pool: a block from the bin of the processor's own shard.
// It is one function, and the request is passed by value, because a call or an address
// costs a tenth of the whole.
func New(r Resource, request Request) (Buffer, error) {
	p, ok := r.(*Pool)
	if !ok || p == nil {
		if t, ok := r.(*Tenant); ok && t != nil {
			return t.newBuffer(request)
		}
		return newCellBuffer(r, request)
	}
	if !owner.Empty(p.home) {
		p.cells.Drain()
	}
	if request.Size > block.MaxClassUnits*unit || request.Align > unit || request.Align&(request.Align-1) != 0 || (request.Queue != nil && p.pending.Unstalled.Load() != 0) {
		return p.slowBuffer(request, nil)
	}
	k := block.ClassFor(max((request.Size+unit-1)/unit, p.minUnits))
	id := pin.Pin()
	s := p.front.Claim(id)
	if s == nil {
		if s = p.front.ClaimOther(id); s == nil {
			return p.slowBuffer(request, nil)
		}
	}
	c := s.Take(k)
	if c == nil {
		if c = s.TakeSpare(k); c == nil {
			s.Leave()
			return p.slowBuffer(request, nil)
		}
	}
	s.CountTake(k, uint64(request.Size))
	publish := s.Grew()
	s.Leave()
	c.Requested = uint64(request.Size)
	block.SetState(c, block.InUse)
	ref := c.Renew()
	if publish || request.Tag != "" || request.Queue != nil || p.watched || stacks.Depth.Load() != 0 {
		p.annotate(c, request.Tag, request.Queue)
	}
	return Buffer{ref: ref}, nil
}

// Release removes one reference. With the last one the memory returns to its resource,
// immediately or when the work pending on it is complete. In a process with Python, memory that
// other libraries were shown returns when a call waits for their work: an allocation that would
// otherwise ask for more memory or fail, [Pool.Trim], [TrimAll] or [Flush]. If C drops the last reference, a
// background goroutine returns the memory. Release does nothing on the zero Buffer and after the
// last reference, so that it can be deferred. While other references exist, one Release too many
// removes one of them, and the next use of its buffer panics.
func (b Buffer) Release() {
	// The second half repeats [Pool.cache], for the reason that New is one function.
	if last, ok := b.ref.TryUnref(); !last {
		if !ok && debug.Stacks {
			b.releasedAgain()
		}
		return
	}
	c := b.ref.Cell()
	p := poolOf(c)
	if p == nil {
		c.Finish()
		return
	}
	k := uint(block.Class(c))
	if !c.Plain(p.flags) || k >= block.NumClasses || p.watched {
		p.freeCell(c)
		return
	}
	id := pin.Pin()
	s := p.front.Claim(id)
	if s == nil {
		if s = p.front.ClaimOther(id); s == nil {
			p.cache(c, int(k))
			return
		}
	}
	s.Put(int(k), c)
	s.CountPut(int(k), c)
	if s.NeedsWork(int(k)) {
		p.afterPut(s, int(k))
		return
	}
	s.Leave()
}

// poolOf returns the pool of a cell, nil if its resource is not a pool or has a number
// beyond the table.
func poolOf(c *owner.Cell) *Pool {
	if i := c.Resource; i < uint32(len(poolTable)) {
		return poolTable[i].Load()
	}
	return nil
}

// UnknownSize is the size of foreign memory whose size is not known.
const UnknownSize = owner.UnknownSize

// ForeignOptions describe foreign memory and its end.
type ForeignOptions struct {
	// Place is context, device and kind of the memory, nil for host memory. The buffer
	// retains it.
	Place *syclobj.Place

	// Queue is a queue on which the owner of the memory may have unreported work, nil for none. Later
	// accesses and launches come after it.
	Queue *syclobj.Queue
	// Of is the buffer whose memory this is, if it is known: both then have one record of pending
	// work. It is borrowed: Release ends the reference that keeps it alive. The zero Buffer means
	// other memory.
	Of Buffer
	// Interprocess says that other processes can access the memory.
	Interprocess bool

	// Release, which may be nil, is called once, on any goroutine, after the last reference
	// was released and pending work is complete. It must not wait for the release of
	// another buffer.
	Release func()
}

// FromForeign makes a buffer of foreign memory: size bytes at p, or [UnknownSize]. The caller
// releases it. The buffer keeps Go memory reachable.
//
// It fails with an [*OpError] of kind ErrRequest for a nil address with a size. On error it
// takes nothing over and calls nothing.
func FromForeign(p unsafe.Pointer, size uint64, o ForeignOptions) (Buffer, error) {
	if p == nil && size != 0 {
		return Buffer{}, opError("FromForeign", ErrRequest, "a nil address with a size of %d bytes", size)
	}
	place := o.Place
	if place == nil {
		place = syclobj.HostPlace()
	}
	keeper.frees.Bound(context.Background())
	c, err := owner.New(foreignCells)
	if err != nil {
		return Buffer{}, &OutOfMemoryError{Request: Request{Size: uintptr(size)}, Place: place, Err: err}
	}
	c.Address, c.Size = uintptr(p), size
	c.Requested = size
	c.Place = uintptr(place.Ref())
	of := recordOf(c)
	of.memory, of.release = p, o.Release
	of.place.Store(place.Retain())
	flags := owner.Foreign | owner.Imported
	if place.HostReadable() {
		flags |= owner.HostReadable
	}
	if of := o.Of.ref.Cell(); of != nil {
		c.SetRecord(of.Record())
		flags |= owner.Alias
	} else if o.Interprocess && !place.IsHost() {
		flags |= owner.Observers
	}
	stacks.NoteAllocation(c)
	c.ResetFlags(flags) // last: from now on reports list the cell
	b := Buffer{ref: c.Ref()}
	if o.Queue != nil {
		b.importedOn(o.Queue, place)
	}
	return b, nil
}
