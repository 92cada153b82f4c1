package memmgr

import (
	"context"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Other libraries submit work on memory that they were shown, and report no events. This file has the
// queues on which such work may be, and the order of other work behind it. They are
//
//   - the default queues of the place (usmb_place_show), for memory that was exported, imported or
//     shown without another queue;
//   - the queue of last use and the other queues of the cell (queues.others), for memory that was
//     exported, imported or shown with a queue.
//
// The record of an alias is that of the cell to which it refers.

// shownFlags are the flags of memory that was given to other libraries.
const shownFlags = owner.Exported | owner.Async | owner.OnQueues

// record returns the cell with the pending event and the queues of memory that is referenced and
// awake, or panics.
func (b Buffer) record(op string) *owner.Cell { return b.live(op).Record() }

// SharedOn records that other libraries may submit work on the memory to q without reporting it. Later
// host accesses, copies, exports and launches come after the work on q, and so does the reuse of the
// memory. SharedOn ignores queues of the host and closed queues.
func (b Buffer) SharedOn(q *syclobj.Queue) {
	c := b.record("SharedOn")
	rec, _ := retainQueue(q)
	if rec == nil {
		return
	}
	defer releaseQueue(rec.ref)
	if own := ownQueue(c.Place); own != 0 && equalQueueRefs(own, rec.ref) {
		showOwnQueue(c.Place)
		c.SetFlags(owner.Async)
		return
	}
	c.SetFlags(owner.OnQueues) // before the look at the queue of last use: see noteRecord
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if c.Queue() != rec.ref && addOther(c, rec.ref) {
		rec.users++
	}
}

// importedOn records that the owner of foreign memory that no other goroutine knows yet may have
// unreported work on q. Unlike SharedOn it adds no barrier to the end of the memory.
func (b Buffer) importedOn(q *syclobj.Queue) {
	c := b.ref.Cell()
	if c.Flags()&owner.Alias != 0 {
		b.SharedOn(q)
		return
	}
	rec, _ := retainQueue(q)
	if rec == nil {
		return
	}
	defer releaseQueue(rec.ref)
	if own := ownQueue(c.Place); own != 0 && equalQueueRefs(own, rec.ref) {
		showOwnQueue(c.Place)
		return
	}
	noteRecord(c, rec)
}

// ExportOn gives the memory to a consumer that works on q: later work of q starts after all earlier
// work on the memory, and the memory is exported and shared on q (SetExported, SharedOn). If the runtime
// refuses the order, ExportOn waits for the work. The error is the failure of earlier work, or
// syclobj.ErrClosed; then nothing was recorded.
func (b Buffer) ExportOn(q *syclobj.Queue) error {
	if q == nil || q.IsHost() {
		err := b.Wait()
		if err == nil {
			b.SetExported()
		}
		return err
	}
	c := b.record("ExportOn")
	rec, err := retainQueue(q)
	if err != nil {
		return err
	}
	defer releaseQueue(rec.ref)
	event, err := copyPending(systemEvents, c)
	if err == nil {
		err = orderQueue(rec.ref, event, sharedQueues(c))
	}
	if event != 0 {
		systemEvents.ReleaseEvent(event)
	}
	if err != nil {
		if err := b.Wait(); err != nil {
			return err
		}
	}
	b.SetExported()
	b.SharedOn(q)
	return nil
}

// SharedQueues returns the queues (sycl::queue*) on which other libraries may have unreported work on
// the memory, except for the default queues of its place. They are borrowed: they are valid until the
// buffer is released.
func (b Buffer) SharedQueues() []uintptr { return recordedQueues(b.record("SharedQueues")) }

// DropQueues removes the queues that are recorded for a dead owner cell of another package of this
// module, before that package recycles the cell.
func DropQueues(c *owner.Cell) {
	if q := c.Queue(); q != 0 {
		c.SetQueue(0)
		releaseQueue(q)
	}
	releaseQueues(takeOthers(c))
}

func recordedQueues(c *owner.Cell) []uintptr {
	if c.Flags()&(owner.Exported|owner.Foreign|owner.OnQueues) == 0 {
		return nil
	}
	all := otherQueues(c)
	if q := c.Queue(); q != 0 {
		all = append(all, q)
	}
	return all
}

// sharedQueues returns all queues on which other libraries may have unreported work on the memory.
// They are valid while the caller holds the cell.
func sharedQueues(c *owner.Cell) []uintptr {
	all := recordedQueues(c)
	if c.Flags()&(owner.Exported|owner.Foreign|owner.Async) != 0 {
		all = append(all, shownQueues(c.Place)...)
	}
	return all
}

// fencesOf returns the queues that have to take a barrier before seen memory of a dead cell is reused:
// first its queue of last use, 0 for the place's own queue.
func fencesOf(c *owner.Cell) []uintptr {
	return append(append([]uintptr{c.Queue()}, otherQueues(c)...), shownQueues(c.Place)...)
}

// waitShared waits for unreported work of other libraries, and returns the failure of the wait.
func waitShared(ctx context.Context, c *owner.Cell) error {
	if c.Flags()&owner.Seen == 0 || c.Place == 0 {
		return nil
	}
	all := sharedQueues(c)
	if len(all) == 0 {
		return nil
	}
	if ctx.Done() == nil {
		return waitQueues(all)
	}
	var events []uintptr
	defer func() { systemEvents.ReleaseEvents(events) }()
	for _, q := range all {
		event, err := systemEvents.Barrier(q)
		if err != nil {
			return err
		}
		events = append(events, event)
	}
	for len(events) > 0 {
		event := events[len(events)-1]
		events = events[:len(events)-1]
		if err := awaitAndRelease(ctx, systemEvents, event); err != nil {
			return err
		}
	}
	return nil
}

// addShared adds events for unreported work of other libraries to the events that the work starts
// after.
func (s *Submission) addShared(c *owner.Cell) {
	for _, q := range sharedQueues(c) {
		if s.record != nil && s.record.inOrder && (q == s.record.ref || equalQueueRefs(q, s.record.ref)) {
			continue
		}
		event, err := systemEvents.Barrier(q)
		if err != nil {
			s.failed = both(s.failed, err)
			continue
		}
		s.after = append(s.after, foreignPointer(event))
	}
}
