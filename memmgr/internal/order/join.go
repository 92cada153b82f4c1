package order

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/syclobj"
)

// AddEvent makes a cell that only the caller has wait for an event beside its own. It takes the
// event. If ordered, the event precedes later work of the cell's queue. On an error
// nothing has changed.
func AddEvent(s Synchronizer, c *owner.Cell, event uintptr, ordered bool) error {
	own := c.Pending()
	if own != 0 && s.EventDone(own) {
		own = 0
	}
	if own != 0 || ordered {
		joined, err := s.Join(c.Queue(), cmp.Or(own, event), event)
		if err != nil {
			return err
		}
		s.ReleaseEvent(event)
		event = joined
	}
	if old := c.SwapPending(event); old != 0 {
		s.ReleaseEvent(old)
	}
	return nil
}

// addingPending is held while an event is added to a cell, and while the queue of a cell that other
// goroutines may use is changed. Without it a cell can only lose an event that is done.
//
// If the queue of a cell is in-order, the pending event precedes later work of that queue:
// [Submission.Begin] relies on this and returns no event then. Therefore [replacePending] stores the
// event before the queue.
var addingPending block.Mutex

// lockPending acquires addingPending. Meanwhile the goroutine does not have the lock of usmb_host_lock, which work may
// need for which the holder of addingPending waits.
func lockPending() {
	if addingPending.TryLock() {
		return
	}
	acquire := ReleaseLock()
	addingPending.Lock()
	acquire()
}

// lockForJoin is lockPending for a caller of joinPending with a queue, nil for an unknown one. If barriers must not be
// pending, it first waits for work on the cell that needs one, and returns its failure.
func lockForJoin(c *owner.Cell, rec *queueRecord) (failed error) {
	for {
		lockPending()
		if System.BarriersPend() || isOrdered(c, rec) || !Pending(c) {
			return failed
		}
		addingPending.Unlock()
		failed = errors.Join(failed, waitRecorded(context.Background(), c))
	}
}

// isOrdered reports whether the queue of last use of a cell is rec and runs later work after earlier work.
func isOrdered(c *owner.Cell, rec *queueRecord) bool {
	return rec != nil && rec.inOrder && c.Queue() == rec.ref
}

// moveTo makes a queue, which the caller holds, the queue of last use, and puts the pending event
// before later work of it.
func moveTo(c *owner.Cell, rec *queueRecord) {
	if c.Queue() == rec.ref {
		return
	}
	keepFailure(c, lockForJoin(c, rec))
	keepFailure(c, joinPending(c, rec, 0))
	addingPending.Unlock()
	endSurplus(c)
}

// joinPending adds an event to a cell, which it takes, and makes the event's queue the queue of last
// use. If that queue is not known, rec is nil: the queue of last use stays, and its later work runs
// after the event. If event is 0, there is a queue but no new work, and later work of the queue runs after
// the pending event. If the runtime refuses the barrier, or barriers must not be pending, joinPending waits for the
// work. It returns the failure of work that no later wait can report. addingPending is held.
func joinPending(c *owner.Cell, rec *queueRecord, event uintptr) error {
	old, failed := CopyPending(c)
	defer func() { System.ReleaseEvent(old) }()
	before := old // has to precede the result
	if old != 0 && System.EventDone(old) {
		failed = System.WaitEvent(old) // returns immediately, with the failure of the work
		before = 0
	}
	queue := c.Queue()
	stray := rec == nil && queue != 0 && !System.EventDone(event)
	if rec != nil {
		queue = rec.ref
	}
	pend := System.BarriersPend()
	if !pend && isOrdered(c, rec) {
		before = 0
	}
	if before != 0 || stray {
		var joined uintptr
		var err error
		if pend {
			joined, err = System.Join(queue, cmp.Or(before, event), cmp.Or(event, before))
		}
		if pend && err == nil {
			System.ReleaseEvent(event)
			event = joined
		} else {
			if before != 0 {
				failed = System.WaitEvent(before)
			}
			if stray {
				failed = errors.Join(failed, System.WaitEvent(event))
			}
		}
	}
	if event == 0 {
		noteRecord(c, rec)
		return failed
	}
	replaced := replacePending(c, rec, event)
	defer System.ReleaseEvent(replaced)
	if old == 0 && replaced != 0 { // the cell had an event that could not be copied
		failed = errors.Join(failed, System.WaitEvent(replaced))
	}
	return failed
}

// replacePending stores an owned event that precedes later work of the queue in a cell, then the
// queue of last use unless rec is nil, and then counts the change: a goroutine that reads the new
// count also reads the new event and queue. It returns the former event, which the caller owns.
// addingPending is held.
func replacePending(c *owner.Cell, rec *queueRecord, event uintptr) uintptr {
	c.HoldPending()
	old := c.SwapPending(event)
	c.LetPending()
	if rec != nil {
		noteRecord(c, rec)
	}
	changesOf(c).Add(oneChange)
	return old
}

// Wait waits for recorded work on a cell, and for all work on the queues with which other libraries were shown
// the memory. It returns the failure of the work. forOthers leaves out unreported work on the own queue of the
// place.
func Wait(ctx context.Context, c *owner.Cell, forOthers bool) error {
	err := waitRecorded(ctx, c)
	if err == nil {
		err = waitUsedFor(ctx, c)
	}
	flags := c.Flags()
	switch {
	case err != nil || flags&(owner.Seen|owner.Failed) == 0:
		return err
	case flags&owner.Failed != 0 && c.TakeFailure():
		return &syclobj.OpError{Op: "wait for work on a buffer", Err: syclobj.ErrAsync}
	case forOthers && onlyOwnQueue(c):
		return nil
	}
	return waitShared(ctx, c)
}

func waitRecorded(ctx context.Context, c *owner.Cell) error {
	if c.Pending() == 0 {
		return nil
	}
	event, err := CopyPending(c)
	if event != 0 {
		err = awaitEvent(ctx, event)
		if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
			return err
		}
	}
	clearPending(c)
	return err
}

// awaitEvent waits until an event, which it takes, is done or the context ends. It returns the failure of
// the work.
func awaitEvent(ctx context.Context, event uintptr) error {
	if ctx.Done() == nil {
		defer System.ReleaseEvent(event)
		return System.WaitEvent(event)
	}
	defer ReleaseLock()()
	ev := syclobj.TakeEvent(nil, owner.Pointer(event))
	defer func() { _ = ev.Close() }()
	return ev.Wait(ctx)
}

// CopyPending returns an owned copy of the pending event, 0 if there is none. If the library cannot
// copy the event for lack of memory, CopyPending tries again until it can or until the work has ended,
// and returns the failure of the work. It holds the spin bit only for the attempts: the work may need
// Python's GIL, whose holder may spin.
func CopyPending(c *owner.Cell) (event uintptr, failed error) {
	for c.Pending() != 0 {
		c.HoldPending()
		pending, ended := c.Pending(), true
		if pending != 0 {
			if event = System.CopyEvent(pending); event == 0 {
				if ended = hasEnded(pending); ended {
					failed = System.WaitEvent(pending) // returns immediately
				}
			}
		}
		c.LetPending()
		if ended {
			return event, failed
		}
		time.Sleep(copyPause)
	}
	return 0, nil
}

// pendingEvent is CopyPending for callers that cannot return a failure. It stays on the memory.
func pendingEvent(c *owner.Cell) uintptr {
	event, failed := CopyPending(c)
	keepFailure(c, failed)
	return event
}

// keepFailure makes the next wait for the memory of a cell return a failure of work.
func keepFailure(c *owner.Cell, failed error) {
	if failed != nil {
		c.SetFlags(owner.Failed)
	}
}

// copyPause is the time between two attempts to copy an event.
const copyPause = time.Millisecond

// clearPending removes the pending event if it is done.
func clearPending(c *owner.Cell) {
	c.HoldPending()
	event := c.Pending()
	if event != 0 && System.EventDone(event) {
		c.SwapPending(0)
	} else {
		event = 0
	}
	c.LetPending()
	if event != 0 {
		System.ReleaseEvent(event)
	}
}

// SetPending adds an event of q, or of an unknown queue if q is nil, to the work that is pending on a cell. It makes
// q the queue of last use, also without an event, and puts pending work before its later work.
func SetPending(c *owner.Cell, q *syclobj.Queue, ev *syclobj.Event) error {
	rec, closed := retainQueue(q)
	if rec != nil {
		defer releaseQueues(rec.ref)
	}
	if ref := eventRef(ev); ref != 0 {
		var failed error
		if rec == nil && !System.BarriersPend() {
			failed = System.WaitEvent(ref)
		}
		defer endSurplus(c)
		failed = errors.Join(failed, lockForJoin(c, rec))
		defer addingPending.Unlock()
		return errors.Join(failed, joinPending(c, rec, ref), closed)
	}
	if rec != nil {
		moveTo(c, rec)
	}
	// There is no event, or it has no reference of the runtime: it is host work, or complete.
	return errors.Join(ev.Wait(context.Background()), closed)
}

// Pending reports whether recorded work on a cell has not finished.
func Pending(c *owner.Cell) bool {
	event := pendingEvent(c)
	defer System.ReleaseEvent(event)
	return event != 0 && !System.EventDone(event)
}

// Event returns an owned event that completes with the work for which Wait waits, 0 if there is none. It waits
// itself for work for which the runtime gives no event, or no common event with the rest.
func Event(c *owner.Cell) (event uintptr) {
	var e earlier
	e.add(c)
	keepFailure(c, e.failed)
	place := Events{ownQueue(c.Place)}
	for _, next := range e.after {
		last := uintptr(next)
		if event == 0 {
			event = last
			continue
		}
		joined, err := place.Join(0, event, last)
		if err != nil {
			keepFailure(c, System.WaitEvent(last))
			System.ReleaseEvent(last)
			continue
		}
		System.ReleaseEvents([]uintptr{event, last})
		event = joined
	}
	return event
}
