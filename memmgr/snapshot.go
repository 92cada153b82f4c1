package memmgr

import (
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/account"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
	"github.com/usmbridge/usmbridge/syclobj"
)

// The states of blocks, in the terms of PyTorch's memory viewer.
const (
	BlockActive  = "active_allocated"
	BlockPending = "active_pending_free" // freed, with pending work
	BlockFree    = "inactive"
)

// SnapshotBlock is a block of a segment.
type SnapshotBlock struct {
	Address   uintptr
	Size      uint64
	Requested uint64 // of a block in use
	State     string // BlockActive, BlockPending or BlockFree
	Cached    bool   // free, in a cache of its size class
	Tag       string
	Stack     Stack // place of allocation of a block in use, where it was recorded
}

// SnapshotSegment is a segment and its blocks in order of address.
type SnapshotSegment struct {
	Address uintptr
	Size    uint64
	Closed  bool // gives nothing out until it is empty: it is reserved for a waiter (SnapshotWait)
	Blocks  []SnapshotBlock
}

// SnapshotWait is a request that waits for memory.
type SnapshotWait struct {
	Requested     uint64
	Tenant        string // "" for the pool's own
	AtHard        bool   // for room under its tenant's hard limit, not for memory of the pool
	Since         time.Time
	ReservedSince time.Time // start of its reservation of memory, zero if there is none
	Reservations  int       // how many it has had
}

// Snapshot is the state of a pool at one moment.
type Snapshot struct {
	Pool     string
	Place    string
	Device   int32 // DLPack device id, 0 when there is none
	Taken    time.Time
	Stats    Stats
	Segments []SnapshotSegment
	Waiting  []SnapshotWait // those of one tenant in order of arrival
	Trace    []TraceEntry
	Lost     uint64 // number of older actions, which the ring has lost
}

// Snapshot returns the state of the pool, which is locked meanwhile. A block that another
// goroutine has just allocated may be shown without its tag and stack.
func (p *Pool) Snapshot() *Snapshot {
	s := &Snapshot{Pool: p.options.name}
	if place := p.Place(); place != nil {
		s.Place = place.String()
		if _, id, err := place.DLPackDevice(); err == nil {
			s.Device = id
		}
	}
	p.stopped(func() {
		s.Taken, s.Stats = time.Now(), p.stats()
		if p.trace != nil {
			p.trace.put(TraceEntry{Action: traceSnapshot})
			s.Trace, s.Lost = p.trace.list()
		}
		p.heap.Walk(func(base, size uintptr, closed bool) {
			s.Segments = append(s.Segments, SnapshotSegment{Address: base, Size: uint64(size), Closed: closed})
		}, func(piece tlsf.Piece) {
			seg := &s.Segments[len(s.Segments)-1]
			seg.Blocks = append(seg.Blocks, snapshotBlock(seg.Address, piece))
		})
		s.Waiting = p.snapshotWaits()
	})
	return s
}

// snapshotWaits lists the waiting requests. p.mu is held.
func (p *Pool) snapshotWaits() (all []SnapshotWait) {
	l := &p.waitlist
	for _, line := range l.lines {
		for _, x := range line.waiters {
			wait := SnapshotWait{Requested: uint64(x.w.r.Size), Since: x.since, Reservations: x.attempts}
			if t := x.w.tenant; t != nil {
				wait.Tenant = t.name
			}
			if l.reserved.of == x {
				wait.ReservedSince = l.reserved.since
			}
			all = append(all, wait)
		}
	}
	p.eachTenant(func(t *Tenant) {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, x := range t.queue {
			all = append(all, SnapshotWait{Requested: uint64(x.w.r.Size), Tenant: t.name, AtHard: true, Since: x.since})
		}
	})
	return all
}

func snapshotBlock(base uintptr, piece tlsf.Piece) SnapshotBlock {
	b := SnapshotBlock{Address: base + piece.Offset, Size: uint64(piece.Size), State: BlockFree}
	if piece.Free || piece.User == 0 {
		return b
	}
	f := owner.At(piece.User).Look()
	switch {
	case f.Count > 0:
		b.State, b.Requested = BlockActive, f.Requested
		b.Tag, b.Stack = account.TagName(f.Tag), stacks.Of(f.Stack)
	case f.Flags&owner.Queued != 0:
		b.State, b.Requested = BlockPending, f.Requested
	default:
		b.Cached = true
	}
	return b
}

// Actions of a pool, in the terms of PyTorch's memory viewer.
const (
	traceAlloc         = "alloc"
	traceFreeRequested = "free_requested"
	traceFreeCompleted = "free_completed"
	traceSegmentAlloc  = "segment_alloc"
	traceSegmentFree   = "segment_free"
	traceSnapshot      = "snapshot"
	traceOOM           = "oom"
)

// TraceEntry is one action of a pool.
type TraceEntry struct {
	Action  string // "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "snapshot" or "oom"
	Address uintptr
	Size    uint64
	Tag     string
	Time    time.Time
	Stack   Stack // where it was recorded

	stack uint32
}

// traceRing contains the last actions.
type traceRing struct {
	mu      sync.Mutex
	entries []TraceEntry
	next    uint64 // actions ever
}

func (t *traceRing) put(e TraceEntry) {
	e.Time = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries[t.next%uint64(len(t.entries))] = e
	t.next++
}

func (t *traceRing) add(action string, c *owner.Cell) {
	t.put(TraceEntry{Action: action, Address: c.Address, Size: c.Size, Tag: account.TagName(c.Tag), stack: c.Stack})
}

func (t *traceRing) addSegment(action string, address, size uintptr) {
	e := TraceEntry{Action: action, Address: address, Size: uint64(size)}
	if depth := stacks.Depth.Load(); depth != 0 {
		e.stack = stacks.Capture(int(depth), 3)
	}
	t.put(e)
}

// list returns the actions in the ring, oldest first, and the number of lost ones.
func (t *traceRing) list() (entries []TraceEntry, lost uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := uint64(len(t.entries))
	first := max(t.next, n) - n
	for i := first; i < t.next; i++ {
		e := t.entries[i%n]
		e.Stack = stacks.Of(e.stack)
		entries = append(entries, e)
	}
	return entries, first
}

// LiveBuffer describes memory that is still referenced.
type LiveBuffer struct {
	Address   uintptr
	Size      uint64
	Requested uint64
	Count     int // references
	// Place describes context, device and kind. It is not retained: once the memory may have been
	// released, only its description can be read (see [syclobj.Place]).
	Place    *syclobj.Place
	Resource Resource // nil for foreign memory
	Tag      string
	Stack    Stack // place of allocation, where it was recorded
	Foreign  bool
}

// Live lists the memory that is referenced now, oldest cell first. It visits every owner
// cell that was ever used: it is for reports. Memory that is allocated or released during
// the call may or may not be in the list, and may be listed without its tag and stack.
func Live() []LiveBuffer {
	var all []LiveBuffer
	eachLive(func(f owner.Facts) {
		if b, ok := describe(f); ok {
			all = append(all, b)
		}
	})
	return all
}

// describe returns the description of the memory of a cell of which the caller holds no reference. It
// returns false if the memory was released meanwhile: then the parts may be of two pieces of memory.
func describe(f owner.Facts) (b LiveBuffer, ok bool) {
	b = LiveBuffer{
		Address: f.Address, Size: f.Size, Requested: f.Requested, Count: int(f.Count),
		Tag: account.TagName(f.Tag), Stack: stacks.Of(f.Stack), Foreign: f.Flags&owner.Foreign != 0,
	}
	if p := poolAt(f.Resource); p != nil {
		b.Resource, b.Place = p, p.place
	} else if f.Ref.TryRetain() { // the record, or the place of a cell that C made, ends with the last reference
		b.Resource, b.Place = unpooledOwner(f.Ref.Cell(), f.Place)
		f.Ref.Cell().Release()
	}
	return b, f.Ref.Valid()
}

// eachLive calls f for every cell of this package's memory that has references.
func eachLive(f func(owner.Facts)) {
	_, used := owner.Capacity()
	for i := 1; i <= used; i++ {
		facts := owner.At(uint32(i)).Look()
		if facts.Count != 0 && (facts.Resource != 0 || facts.Flags&owner.Foreign != 0) {
			f(facts)
		}
	}
}

// eachUsed calls f for the cells of this pool that have references. It visits every block.
// p.mu is held.
func (p *Pool) eachUsed(f func(owner.Facts)) {
	p.heap.Walk(func(uintptr, uintptr, bool) {}, func(b tlsf.Piece) {
		if b.Free || b.User == 0 {
			return
		}
		if facts := owner.At(b.User).Look(); facts.Count > 0 {
			f(facts)
		}
	})
}

// LiveCount returns the number of pieces of memory that are referenced, and the bytes of
// those whose size is known.
func LiveCount() (buffers int, bytes uint64) {
	eachLive(func(f owner.Facts) {
		if !f.Ref.Valid() {
			return
		}
		buffers++
		if f.Size != owner.UnknownSize {
			bytes += f.Size
		}
	})
	return buffers, bytes
}
