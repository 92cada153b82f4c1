package memmgr

import (
	"context"
	"errors"
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Queue returns the reference (sycl::queue*) of the queue of last use, nil when
// none was recorded. It is borrowed: valid as long as the buffer is and no other
// queue is recorded.
func (b Buffer) Queue() unsafe.Pointer { return foreignPointer(b.live("Queue").Queue()) }

// UsedOn records the queue of last use: the memory is reused at once by work on
// that queue if it is in-order, and behind a barrier on it after an export. Work
// that is still pending from another queue is put before what comes on this one,
// by a barrier.
func (b Buffer) UsedOn(q *syclobj.Queue) {
	c := b.live("UsedOn")
	if noteQueue(c, q) && c.Pending() != 0 {
		followPending(c)
	}
}

// SetPending records that work on the memory was submitted to q and ends with
// ev. The buffer keeps a reference of its own to the event. An event that is
// still pending from before is waited for too. The error tells of work recorded
// before that has failed meanwhile, which nobody could learn later; ev is
// recorded all the same.
func (b Buffer) SetPending(q *syclobj.Queue, ev *syclobj.Event) error {
	c := b.live("SetPending")
	if q != nil {
		noteQueue(c, q)
	}
	if ev == nil {
		return nil
	}
	ref := eventRef(ev)
	if ref == 0 {
		// No event of the runtime stands behind it: host work, or done.
		return ev.Wait(context.Background())
	}
	err := addPending(c, ref)
	if q == nil && c.Queue() != 0 {
		followPending(c) // on whatever queue the event is
	}
	return err
}

// followPending makes the queue of last use wait for what is pending: who reuses
// the memory on that queue relies on its order alone.
func followPending(c *owner.Cell) {
	addingPending.Lock()
	defer addingPending.Unlock()
	event := copyPending(c)
	if event == 0 {
		return
	}
	defer systemEvents.ReleaseEvent(event)
	if systemEvents.EventDone(event) {
		return
	}
	joined, err := systemEvents.Join(c.Queue(), event, event)
	if err != nil {
		_ = systemEvents.WaitEvent(event) // the last resort, and still right
		return
	}
	if old := swapPending(c, joined); old != 0 {
		systemEvents.ReleaseEvent(old)
	}
}

// addingPending keeps additions apart: meanwhile others can only take away an
// event that is done.
var addingPending sync.Mutex

// addPending puts an owned event into the cell, joined with what is there.
// It returns the failure of work that nobody can wait for any more.
func addPending(c *owner.Cell, event uintptr) error {
	addingPending.Lock()
	defer addingPending.Unlock()
	return joinPending(c, event)
}

// joinPending is addPending with addingPending held.
func joinPending(c *owner.Cell, event uintptr) error {
	// Once it is in the cell, another goroutine may see it done and release it.
	mine := copyEvent(event)
	defer systemEvents.ReleaseEvent(mine)
	old := swapPending(c, event)
	if old == 0 {
		return nil
	}
	defer systemEvents.ReleaseEvent(old)
	if systemEvents.EventDone(old) {
		return systemEvents.WaitEvent(old) // at once: for its failure
	}
	joined, err := systemEvents.Join(c.Queue(), old, mine)
	if err != nil {
		return systemEvents.WaitEvent(old)
	}
	if between := swapPending(c, joined); between != 0 {
		systemEvents.ReleaseEvent(between)
	}
	return nil
}

func swapPending(c *owner.Cell, event uintptr) uintptr {
	if event != 0 {
		changesOf(c).Add(oneChange)
	}
	c.HoldPending()
	defer c.LetPending()
	return c.SwapPending(event)
}

// Pending reports whether work is known to be under way on the memory.
func (b Buffer) Pending() bool {
	event := copyPending(b.live("Pending"))
	if event == 0 {
		return false
	}
	defer systemEvents.ReleaseEvent(event)
	return !systemEvents.EventDone(event)
}

// PendingEvent returns an owned reference (sycl::event*) of the pending event,
// nil when nothing is pending; for handing it to C code.
func (b Buffer) PendingEvent() unsafe.Pointer {
	return foreignPointer(copyPending(b.live("PendingEvent")))
}

// Wait blocks until the work that SetPending recorded is complete, and returns
// its failure if it failed.
func (b Buffer) Wait() error {
	c := b.live("Wait")
	if c.Pending() == 0 {
		return nil
	}
	event := copyPending(c)
	if event == 0 {
		return nil
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
	if ctx.Done() == nil {
		return b.Wait()
	}
	event := copyPending(c)
	if event == 0 {
		return nil
	}
	ev := syclobj.EventFromRef(foreignPointer(event))
	defer func() { _ = ev.Close() }()
	err := ev.Wait(ctx)
	if ended := ctx.Err(); ended == nil || !errors.Is(err, ended) {
		clearPending(c)
	}
	return err
}

// ClearPending forgets the pending event: for callers that know the work to be
// complete, or that wait for it by other means.
func (b Buffer) ClearPending() {
	c := b.live("ClearPending")
	if event := swapPending(c, 0); event != 0 {
		systemEvents.ReleaseEvent(event)
	}
}

// copyPending returns an owned copy of the pending event.
func copyPending(c *owner.Cell) uintptr {
	if c.Pending() == 0 {
		return 0
	}
	c.HoldPending()
	defer c.LetPending()
	return copyEvent(c.Pending())
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
