package memmgr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// sleep is the part of a pool that releases the pages of blocks in use and restores them.
//
// Locks: turn is acquired before all other locks of the pool and held during one Sleep or Wake.
// mu guards the tables and is acquired after Pool.mu; nothing blocks while it is held.
type sleep struct {
	place *syclobj.Place
	pages Discarder // nil: the memory has no pages that can be released
	sync  Synchronizer
	async bool // queues may work on the memory
	host  bool // the host may read and write the memory

	turn  rankedMutex
	count atomic.Int64 // of byCell, for callers without mu

	mu     rankedMutex
	byCell map[*owner.Cell]*sleepingBlock
	byTag  map[uint32][]*sleepGroup
}

// sleepGroup contains the blocks that one Sleep suspended.
type sleepGroup struct {
	tag    uint32
	blocks []*sleepingBlock
	store  sleepStore // of the contents, nil if they were discarded
	left   int        // blocks that were not released; guarded by sleep.mu
}

// sleepingBlock is a block that sleeps, or that Sleep or Wake is working on.
type sleepingBlock struct {
	group   *sleepGroup
	ref     owner.Ref // of the users
	segment int32
	address uintptr
	size    uintptr
	from    uintptr // start of the whole pages that are released
	bytes   uintptr // of these pages
	offset  int64   // of their contents in the store
	sum     uint32  // checksum of their contents

	// Guarded by sleep.mu.
	moving   bool // Sleep or Wake is working on the block: its memory must not be reused
	released bool // the user released it meanwhile
	dropped  bool // and C dropped the last reference: its cell was processed already
}

func (s *sleep) init(o *origin, pages Discarder, sync Synchronizer) {
	s.place, s.pages, s.sync, s.async = o.goPlace, pages, sync, o.sync != nil
	s.host = o.flags&owner.HostReadable != 0
	s.byCell, s.byTag = map[*owner.Cell]*sleepingBlock{}, map[uint32][]*sleepGroup{}
}

func (s *sleep) refuse(kind error, format string, args ...any) error {
	return &OpError{Op: "Pool.Sleep", Place: s.place, Kind: kind, Err: fmt.Errorf(format, args...)}
}

func (s *sleep) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Place: s.place, Err: err}
}

// suspend adds a block to the group and makes its handles stale, if it has the tag and is in use
// by one owner. If it has more owners, they are added to held. Pool.mu is held.
func (s *sleep) suspend(c *owner.Cell, segment int32, g *sleepGroup, o *SleepOptions, held *HeldError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byCell[c] != nil {
		return
	}
	f := c.Look()
	r := f.Ref
	if f.Tag != g.tag || !r.Valid() {
		return
	}
	held.Blocks++
	if reason := holder(c, int(f.Count), o); reason != "" {
		held.add(f, reason)
		return
	}
	if !r.Suspend() {
		held.add(f, "it was retained just now")
		return
	}
	b := &sleepingBlock{group: g, ref: r, segment: segment, address: c.Address, size: uintptr(c.Size), moving: true}
	s.byCell[c] = b
	s.count.Add(1)
	setState(c, stateAsleep)
	g.blocks = append(g.blocks, b)
}

// holder describes the owner of a block beside the one reference that Sleep expects, "" if there
// is none.
func holder(c *owner.Cell, count int, o *SleepOptions) string {
	switch flags := c.Flags(); {
	case flags&owner.Lent != 0:
		return "it was taken through another resource, which knows it by its address"
	case count > 1:
		return fmt.Sprintf("it has %d references", count)
	case flags&owner.Shown != 0 && !o.Returned:
		return "C was given it (SleepOptions.Returned says that C is done with it)"
	case flags&owner.Exported != 0 && !o.Returned:
		return "it was exported (SleepOptions.Returned says that its consumers are done)"
	}
	return ""
}

// awaitWork waits for the work on the blocks of a group: for the recorded events, and for a barrier
// on each queue that the blocks were used on.
func (s *sleep) awaitWork(g *sleepGroup, o *SleepOptions) error {
	ctx := o.Context
	if ctx == nil {
		short, cancel := context.WithTimeout(context.Background(), sleepGrace)
		defer cancel()
		ctx = short
	}
	queues := map[uintptr]bool{}
	for _, b := range g.blocks {
		c := b.ref.Cell()
		if c.Flags()&shownFlags != 0 {
			for _, q := range fencesOf(c) {
				queues[q] = true
			}
		} else if q := c.Queue(); q != 0 {
			queues[q] = true
		}
		event, err := copyPending(s.sync, c)
		if err == nil {
			err = awaitAndRelease(ctx, s.sync, event)
		}
		if err != nil {
			return s.workError(o, err)
		}
	}
	if !s.async {
		return nil
	}
	for q := range queues {
		event, err := s.sync.Barrier(q)
		if err != nil {
			return s.fail("Pool.Sleep", err)
		}
		if err := awaitAndRelease(ctx, s.sync, event); err != nil {
			return s.workError(o, err)
		}
	}
	return nil
}

func (s *sleep) workError(o *SleepOptions, err error) error {
	if o.Context == nil && errors.Is(err, context.DeadlineExceeded) {
		return s.refuse(ErrInUse, "work is pending on the memory; wait for it, or give a Context to wait with")
	}
	if o.Context != nil && ended(o.Context) {
		return s.refuse(ErrInUse, "work is pending on the memory: %w", err)
	}
	return s.fail("Pool.Sleep", err)
}

// awaitAndRelease waits until an event is done or the context ends, and releases the event. It
// returns the failure of the work. 0 is no event.
func awaitAndRelease(ctx context.Context, s Synchronizer, event uintptr) error {
	if event == 0 {
		return nil
	}
	defer s.ReleaseEvent(event)
	for pause := shortPoll; !s.EventDone(event); pause = min(2*pause, longPoll) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
	return s.WaitEvent(event)
}

// release saves the contents of a suspended group, as the options say, and releases its pages. If
// it fails, the contents are intact.
func (s *sleep) release(g *sleepGroup, o *SleepOptions) (freed uint64, err error) {
	g.plan()
	switch {
	case o.To != nil:
		g.store = o.To
	case !missing(o.Into):
		g.store = &memoryStore{from: o.Into, ctx: o.Context}
	}
	if err = s.save(g, o.Context); err == nil {
		if freed, err = s.discard(g); err != nil {
			err = errors.Join(err, s.restore(g))
		}
	}
	return freed, s.fail("Pool.Sleep", err)
}

// plan determines for each block its part of the pages that the blocks of the group fill together.
func (g *sleepGroup) plan() {
	slices.SortFunc(g.blocks, func(a, b *sleepingBlock) int { return cmp.Compare(a.address, b.address) })
	offset := int64(0)
	for run := 0; run < len(g.blocks); {
		end := run + 1
		for end < len(g.blocks) && g.blocks[end].segment == g.blocks[run].segment &&
			g.blocks[end].address == g.blocks[end-1].address+g.blocks[end-1].size {
			end++
		}
		first, last := g.blocks[run], g.blocks[end-1]
		from, bytes := wholePages(first.address, last.address+last.size-first.address)
		for _, b := range g.blocks[run:end] {
			b.from, b.bytes = max(b.address, from), 0
			if to := min(b.address+b.size, from+bytes); to > b.from {
				b.bytes = to - b.from
			}
			b.offset = offset
			offset += int64(b.bytes)
		}
		run = end
	}
}

// discard releases the pages of a group and returns the number of bytes that were resident.
func (s *sleep) discard(g *sleepGroup) (freed uint64, err error) {
	for i := 0; i < len(g.blocks); {
		b := g.blocks[i]
		from, to := b.from, b.from+b.bytes
		for i++; i < len(g.blocks) && g.blocks[i].segment == b.segment && g.blocks[i].from == to; i++ {
			to += g.blocks[i].bytes
		}
		// Blocks that were released meanwhile are not in the list any more. Therefore the range
		// may begin or end within a page.
		from, bytes := wholePages(from, to-from)
		if bytes == 0 {
			continue
		}
		before := residentBytes(from, bytes)
		if err := s.pages.Discard(from, bytes); err != nil {
			return freed, err
		}
		freed += uint64(before - min(before, residentBytes(from, bytes)))
	}
	return freed, nil
}

// markAsleep marks the blocks of a group as asleep, and returns those that were released meanwhile,
// which the caller frees.
func (s *sleep) markAsleep(g *sleepGroup) (released []*sleepingBlock) {
	s.mu.Lock()
	g.blocks = slices.DeleteFunc(g.blocks, func(b *sleepingBlock) bool {
		b.moving = false
		if b.released {
			s.forget(b)
			released = append(released, b)
		}
		return b.released
	})
	empty := len(g.blocks) == 0
	if g.left = len(g.blocks); !empty {
		s.byTag[g.tag] = append(s.byTag[g.tag], g)
	}
	s.mu.Unlock()
	if empty {
		g.endStore()
	}
	return released
}

// latest removes the latest group of a tag from the table and returns it for Wake, nil if there is
// none.
func (s *sleep) latest(tag uint32) *sleepGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.byTag[tag]
	if len(all) == 0 {
		return nil
	}
	g := all[len(all)-1]
	s.forgetGroup(g)
	g.blocks = slices.DeleteFunc(g.blocks, func(b *sleepingBlock) bool { return b.released })
	for _, b := range g.blocks {
		b.moving = true
	}
	return g
}

// end makes the handles of a group valid again. It returns the blocks that were released
// meanwhile, which the caller frees.
func (s *sleep) end(g *sleepGroup) (released []*sleepingBlock) {
	s.mu.Lock()
	for _, b := range g.blocks {
		s.forget(b)
		b.moving = false
		if b.released {
			released = append(released, b)
		} else {
			b.ref.Resume()
		}
	}
	s.mu.Unlock()
	g.blocks = nil
	g.endStore()
	return released
}

// endStore releases the store of a group, which has no blocks left. sleep.mu is not held.
func (g *sleepGroup) endStore() {
	if g == nil {
		return
	}
	if s, ok := g.store.(*memoryStore); ok {
		s.release()
	}
	g.store = nil
}

// forgetGroup removes a group from the table. s.mu is held.
func (s *sleep) forgetGroup(g *sleepGroup) {
	all := slices.DeleteFunc(s.byTag[g.tag], func(other *sleepGroup) bool { return other == g })
	if s.byTag[g.tag] = all; len(all) == 0 {
		delete(s.byTag, g.tag)
	}
}

// forget removes a block from the table. s.mu is held.
func (s *sleep) forget(b *sleepingBlock) {
	delete(s.byCell, b.ref.Cell())
	setState(b.ref.Cell(), stateInUse)
	s.count.Add(-1)
}

// releaseBlock notes that the user released a block that sleeps. It reports whether the block
// slept, and returns it if the caller has to free it now.
func (s *sleep) releaseBlock(r owner.Ref) (released []*sleepingBlock, slept bool) {
	s.mu.Lock()
	b := s.byCell[r.Cell()]
	if b == nil || b.ref != r {
		s.mu.Unlock()
		return nil, false
	}
	if b.released || b.moving { // released before: a release too many
		b.released = true
		s.mu.Unlock()
		return nil, true
	}
	over := s.remove(b)
	s.mu.Unlock()
	over.endStore()
	return []*sleepingBlock{b}, true
}

// dropBlock notes that C dropped the last reference of a block while it slept. It reports whether
// Sleep or Wake is working on the block: then the memory must not be reused yet.
func (s *sleep) dropBlock(c *owner.Cell) (moving bool) {
	if s.count.Load() == 0 {
		return false
	}
	s.mu.Lock()
	b := s.byCell[c]
	if b == nil {
		s.mu.Unlock()
		return false
	}
	if b.moving {
		b.released, b.dropped = true, true
		s.mu.Unlock()
		return true
	}
	over := s.remove(b)
	s.mu.Unlock()
	over.endStore()
	return false
}

// remove removes a block that was released while it slept. It returns the group if this was its
// last block; the caller ends the store of the group without the lock. s.mu is held.
func (s *sleep) remove(b *sleepingBlock) (over *sleepGroup) {
	b.released = true
	s.forget(b)
	if b.group.left--; b.group.left > 0 {
		return nil
	}
	s.forgetGroup(b.group)
	return b.group
}
