package memmgr

import (
	"context"
	"errors"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Queue returns the reference (sycl::queue*) of the queue of last use, nil when
// none was recorded. It is borrowed: valid as long as the buffer is and no other
// queue is recorded.
func (b Buffer) Queue() unsafe.Pointer { return foreignPointer(b.live("Queue").Queue()) }

// UsedOn records the queue of last use: the memory is reused at once by work on
// that queue if it is in-order, and behind a barrier on it after an export. Work
// that is still pending from another queue is put before what comes on this one,
// by a barrier. A queue of the host, and one that is closed, is not recorded.
func (b Buffer) UsedOn(q *syclobj.Queue) {
	c := b.live("UsedOn")
	rec, _ := holdQueue(q)
	if rec == nil {
		return
	}
	defer forgetQueue(rec.ref)
	moveTo(c, rec)
}

// SetPending records that work on the memory was submitted to q and ends with
// ev, which must be an event of q: other work on an in-order q comes after it
// without being told to. For an event of another queue, or of nobody knows which,
// q is nil. The buffer keeps a reference of its own to the event. An event that is
// still pending from before is waited for too. The error tells of work recorded
// before that has failed meanwhile, which nobody could learn later, or that q is closed
// (syclobj.ErrClosed); ev is recorded all the same.
func (b Buffer) SetPending(q *syclobj.Queue, ev *syclobj.Event) error {
	c := b.live("SetPending")
	rec, closed := holdQueue(q)
	if rec != nil {
		defer forgetQueue(rec.ref)
	}
	ref := uintptr(0)
	if ev != nil {
		ref = eventRef(ev)
	}
	if ref != 0 {
		addingPending.Lock()
		defer addingPending.Unlock()
		return both(joinPending(c, rec, ref), closed)
	}
	if rec != nil {
		moveTo(c, rec)
	}
	if ev == nil {
		return closed
	}
	// No event of the runtime stands behind it: host work, or done.
	return both(ev.Wait(context.Background()), closed)
}

// both is errors.Join that leaves an error as it is where there is only one.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}

// addingPending is held by whoever puts an event into a cell, or changes the queue of one
// that others know: meanwhile others can only take away an event that is done.
//
// A cell's queue promises that what is pending comes before later work of that queue, if it
// is in order: [Submission.Begin] looks at no event then. Therefore an event is in the cell
// before its queue is ([replacePending]), and comes before later work of the queue by then.
var addingPending rankedMutex

// moveTo makes a queue that the caller holds the queue of last use, and puts what is pending
// before later work of it.
func moveTo(c *owner.Cell, rec *queueRecord) {
	if c.Queue() == rec.ref {
		return
	}
	addingPending.Lock()
	defer addingPending.Unlock()
	if c.Queue() == rec.ref {
		return
	}
	event, _ := copyPending(c) // without an event there is nobody to tell, as below
	if event == 0 {
		noteRecord(c, rec)
		return
	}
	defer systemEvents.ReleaseEvent(event)
	if !systemEvents.EventDone(event) {
		joined, err := systemEvents.Join(rec.ref, event, event)
		if err == nil {
			if old := replacePending(c, rec, joined); old != 0 {
				systemEvents.ReleaseEvent(old)
			}
			return
		}
		_ = systemEvents.WaitEvent(event) // the last resort, and still right
	}
	noteRecord(c, rec)
}

// joinPending puts an owned event of the queue into the cell, joined with what is there, and
// makes that queue the one of last use. rec is nil if the event's queue is not known: then
// the queue of last use stays and is made to wait for the event. It returns the failure of
// work that nobody can wait for any more. addingPending is held.
func joinPending(c *owner.Cell, rec *queueRecord, event uintptr) error {
	old, failed := copyPending(c)
	defer func() {
		if old != 0 {
			systemEvents.ReleaseEvent(old)
		}
	}()
	before := old // what must come first
	if old != 0 && systemEvents.EventDone(old) {
		failed = systemEvents.WaitEvent(old) // at once: for its failure; there was none yet
		before = 0
	}
	queue := c.Queue()
	stray := rec == nil && queue != 0 && !systemEvents.EventDone(event)
	if rec != nil {
		queue = rec.ref
	}
	if before != 0 || stray {
		first := before
		if first == 0 {
			first = event
		}
		if joined, err := systemEvents.Join(queue, first, event); err == nil {
			systemEvents.ReleaseEvent(event)
			event = joined
		} else {
			// The last resort, and still right.
			if before != 0 {
				failed = systemEvents.WaitEvent(before)
			}
			if stray {
				failed = both(failed, systemEvents.WaitEvent(event))
			}
		}
	}
	left := replacePending(c, rec, event)
	if left == 0 {
		return failed
	}
	defer systemEvents.ReleaseEvent(left)
	if old == 0 { // there was an event, of which there was no copy to be had
		failed = both(failed, systemEvents.WaitEvent(left))
	}
	return failed
}

// replacePending puts an owned event that comes before later work of the queue into the
// cell, then makes the queue the one of last use, nil leaving that as it is, and counts the
// change last: who has seen the count sees the rest. It hands the former event to the
// caller. addingPending is held.
func replacePending(c *owner.Cell, rec *queueRecord, event uintptr) uintptr {
	old := swapPending(c, event)
	if rec != nil {
		noteRecord(c, rec)
	}
	changesOf(c).Add(oneChange)
	return old
}

func swapPending(c *owner.Cell, event uintptr) uintptr {
	c.HoldPending()
	defer c.LetPending()
	return c.SwapPending(event)
}

// Pending reports whether work is known to be under way on the memory.
func (b Buffer) Pending() bool {
	event, _ := copyPending(b.live("Pending"))
	if event == 0 {
		return false
	}
	defer systemEvents.ReleaseEvent(event)
	return !systemEvents.EventDone(event)
}

// PendingEvent returns an owned reference (sycl::event*) of the pending event,
// nil when nothing is pending; for handing it to C code.
func (b Buffer) PendingEvent() unsafe.Pointer {
	event, _ := copyPending(b.live("PendingEvent"))
	return foreignPointer(event)
}

// Wait blocks until the work that SetPending recorded is complete, and returns
// its failure if it failed.
func (b Buffer) Wait() error {
	c := b.live("Wait")
	if c.Pending() == 0 {
		return nil
	}
	event, failed := copyPending(c)
	if event == 0 {
		clearPending(c)
		return failed
	}
	defer systemEvents.ReleaseEvent(event)
	err := systemEvents.WaitEvent(event)
	clearPending(c)
	return err
}

// WaitContext is Wait that gives up when the context ends. The work goes on, and the
// wait leaves nothing behind.
func (b Buffer) WaitContext(ctx context.Context) error {
	c := b.live("WaitContext")
	event, failed := copyPending(c)
	if event == 0 { // before the context is asked, which may wind up a timer
		clearPending(c)
		return failed
	}
	if ctx.Done() == nil {
		systemEvents.ReleaseEvent(event)
		return b.Wait()
	}
	ev := syclobj.EventFromRef(foreignPointer(event))
	defer func() { _ = ev.Close() }()
	err := ev.Wait(ctx)
	if ended := ctx.Err(); ended == nil || !errors.Is(err, ended) {
		clearPending(c)
	}
	return err
}

// copyPending returns an owned copy of the pending event, 0 where nothing is pending. Where
// the library gives no copy, having no memory, it waits for the work there and then, the last
// resort: failed is the work's failure. Nobody may exchange the event meanwhile, because only
// the cell holds it.
func copyPending(c *owner.Cell) (event uintptr, failed error) {
	if c.Pending() == 0 {
		return 0, nil
	}
	c.HoldPending()
	defer c.LetPending()
	pending := c.Pending()
	if event = copyEvent(pending); event == 0 && pending != 0 {
		failed = systemEvents.WaitEvent(pending)
	}
	return event, failed
}

// clearPending forgets the pending event if it is done.
func clearPending(c *owner.Cell) {
	c.HoldPending()
	event := c.Pending()
	if event != 0 && systemEvents.EventDone(event) {
		c.SwapPending(0)
	} else {
		event = 0
	}
	c.LetPending()
	if event != 0 {
		systemEvents.ReleaseEvent(event)
	}
}

// foreignPointer turns an address outside the Go heap into a pointer.
func foreignPointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}
