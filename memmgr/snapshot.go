package memmgr

import (
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// BlockState is what a block is used for, in the words of PyTorch's memory
// viewer.
type BlockState string

// The states of blocks.
const (
	BlockActive  BlockState = "active_allocated"
	BlockPending BlockState = "active_pending_free" // freed, the device still works on it
	BlockFree    BlockState = "inactive"
)

// SnapshotBlock is a block of a segment.
type SnapshotBlock struct {
	Address   uintptr
	Size      uint64
	Requested uint64 // of a block in use
	State     BlockState
	Cached    bool // free, and kept for its size class
	Tag       string
	Stack     Stack // place of allocation of a block in use, where it was recorded
}

// SnapshotSegment is upstream memory and its blocks, by address.
type SnapshotSegment struct {
	Address   uintptr
	Size      uint64
	Dedicated bool // one block that fills it
	Kept      bool // gives nothing out until it is empty, for one who waits: see SnapshotWait
	Blocks    []SnapshotBlock
}

// SnapshotWait is a request that waits for memory. KeptSince is since when the pool
// keeps room for it, zero where it does not, and Kept how often it began to.
type SnapshotWait struct {
	Requested uint64
	Tenant    string // "" for the pool's own
	AtHard    bool   // for room under its tenant's hard limit, not for memory of the pool
	Since     time.Time
	KeptSince time.Time
	Kept      int
}

// Snapshot is the state of a pool at one moment.
type Snapshot struct {
	Pool     string
	Place    string
	Device   int32 // DLPack device id, 0 when there is none
	Taken    time.Time
	Stats    Stats
	Segments []SnapshotSegment
	Waiting  []SnapshotWait // those of one tenant and range of sizes in order of arrival
	Trace    []TraceEntry
	Lost     uint64 // actions that the ring no longer held
}

// Snapshot takes the pool's state. The pool is locked meanwhile.
func (p *Pool) Snapshot() *Snapshot {
	emptyFronts()
	p.origin.list.Drain()
	s := &Snapshot{Pool: p.options.name}
	if place := p.Place(); place != nil {
		s.Place = place.String()
		if _, id, err := place.DLPackDevice(); err == nil {
			s.Device = id
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopShards()
	defer p.resumeShards()
	s.Taken, s.Stats = time.Now(), p.stats()
	if p.trace != nil {
		p.trace.put(TraceEntry{Action: traceSnapshot})
		s.Trace, s.Lost = p.trace.list()
	}
	p.heap.Walk(func(n int32, base, size uintptr) {
		s.Segments = append(s.Segments, SnapshotSegment{Address: base, Size: uint64(size), Dedicated: p.heap.segs[n].dedicated, Kept: p.heap.Closed(n)})
	}, func(piece tlsf.Piece) {
		seg := &s.Segments[len(s.Segments)-1]
		b := snapshotBlock(seg.Address, piece)
		b.Cached = b.Cached || piece.Free && seg.Dedicated // idle
		seg.Blocks = append(seg.Blocks, b)
	})
	s.Waiting = p.snapshotWaits()
	return s
}

// snapshotWaits lists those who wait. p.mu is held.
func (p *Pool) snapshotWaits() (all []SnapshotWait) {
	r := &p.waiters
	for _, line := range r.lines {
		for lane := range line.lanes {
			for x := line.lanes[lane].first; x != nil; x = x.next {
				wait := SnapshotWait{Requested: uint64(x.w.r.Size), Since: x.since, Kept: x.holds}
				if t := x.w.tenant; t != nil {
					wait.Tenant = t.name
				}
				if r.hold.of == x {
					wait.KeptSince = r.hold.since
				}
				all = append(all, wait)
			}
		}
	}
	p.eachTenant(func(t *Tenant) {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, x := range t.queue {
			all = append(all, SnapshotWait{Requested: x.asked, Tenant: t.name, AtHard: true, Since: x.since})
		}
	})
	return all
}

func snapshotBlock(base uintptr, piece tlsf.Piece) SnapshotBlock {
	b := SnapshotBlock{Address: base + piece.Offset, Size: uint64(piece.Size), State: BlockFree}
	if piece.Free || piece.User == 0 {
		return b
	}
	c := owner.At(piece.User)
	switch {
	case c.Count() > 0:
		b.State, b.Requested = BlockActive, c.Requested
		b.Tag, b.Stack = tagName(c.Tag), stackOf(c.Stack)
	case c.Flags()&owner.Queued != 0:
		b.State, b.Requested = BlockPending, c.Requested
	default:
		b.Cached = true
	}
	return b
}
