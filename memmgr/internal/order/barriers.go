package order

import (
	"slices"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// Barriers has an owned event for each queue that took a barrier in a round, 0 if nothing is pending
// on the queue.
type Barriers map[uintptr]uintptr

// refusedBarrier stands for the event of a barrier that the runtime refused.
const refusedBarrier = ^uintptr(0)

// PutBehind makes the memory of a dead cell wait for barriers on its queue of last use and on all
// queues with unreported work, and reports whether the runtime accepted them. last means that no other cell of
// the round follows, so that the cell can take the events.
func (b Barriers) PutBehind(s Synchronizer, c *owner.Cell, last bool) bool {
	for i, q := range fencesOf(c) {
		event, submitted := b[q]
		if !submitted {
			var err error
			if event, err = s.Barrier(q); err != nil {
				event = refusedBarrier
			}
			b[q] = event
		}
		// A request for the block's queue of last use may get the block immediately, so the
		// barrier on another queue has to precede later work of this queue.
		other := i > 0
		switch {
		case event == refusedBarrier:
			return false
		case event == 0 || other && s.EventDone(event):
			continue
		case last:
			delete(b, q)
		default:
			if event = s.CopyEvent(event); event == 0 {
				return false
			}
		}
		if AddEvent(s, c, event, other) != nil {
			s.ReleaseEvent(event)
			return false
		}
	}
	return true
}

// Empty has the queues of one round on which QueueEmpty was asked for, and the answers.
type Empty map[uintptr]bool

// Ended reports whether the work of other libraries on the memory of a dead cell is known to have ended. It does not
// wait. The caller keeps the cell.
func (e Empty) Ended(s Synchronizer, c *owner.Cell) bool {
	w, ok := s.(emptier)
	if !ok || ShownToCUDA(c.Place) {
		return false
	}
	for _, q := range othersOf(c) {
		empty, known := e[q]
		if !known {
			empty = w.QueueEmpty(q)
			e[q] = empty
		}
		if !empty {
			return false
		}
	}
	return true
}

// othersOf returns the queues on which other libraries may have work on the memory of a dead cell.
func othersOf(c *owner.Cell) []uintptr {
	all := fencesOf(c)
	if all[0] != 0 {
		return all
	}
	if own := ownQueue(c.Place); own != 0 && slices.Contains(shownQueues(c.Place), own) {
		all[0] = own
		return all
	}
	return all[1:]
}

// WaitForOthers waits for all work of other libraries on the memory of dead cells. The caller keeps the cells. If it is
// busy, the caller releases its locks and repeats the call: see waiter.
func WaitForOthers(s Synchronizer, cells []*owner.Cell) (busy bool, err error) {
	var queues []uintptr
	var places []uintptr
	for _, c := range cells {
		for _, q := range othersOf(c) {
			if !slices.Contains(queues, q) {
				queues = append(queues, q)
			}
		}
		if ShownToCUDA(c.Place) && !slices.Contains(places, c.Place) {
			places = append(places, c.Place)
		}
	}
	for _, place := range places {
		if err := waitCUDA(place); err != nil {
			return false, err
		}
	}
	w, ok := s.(waiter)
	if !ok {
		return false, nil
	}
	return w.TryWaitQueues(queues)
}

// Release releases the events.
func (b Barriers) Release(s Synchronizer) {
	for _, event := range b {
		if event != 0 && event != refusedBarrier {
			s.ReleaseEvent(event)
		}
	}
}

// Gather makes the event of a dead cell that of all work on the memory, and removes its queues. If the
// work has ended, the cell has no event. It reports false if there is no such event: because of work of
// CUDA, because barriers must not be pending, or because the runtime refused one. Then the caller keeps the
// cell until it has waited for the work.
func Gather(s Synchronizer, c *owner.Cell) bool {
	if s != nil && c.Flags()&ShownFlags != 0 {
		b := Barriers{}
		defer b.Release(s)
		switch {
		case ShownToCUDA(c.Place):
			return false
		case !BarriersPend(s):
			if len(othersOf(c)) > 0 { // plain memory has no queues
				return false
			}
		case !b.PutBehind(s, c, true):
			return false
		}
		c.ClearFlags(ShownFlags)
	}
	DropQueues(c)
	if event := c.Pending(); event != 0 && s != nil && s.EventDone(event) {
		s.ReleaseEvent(c.SwapPending(0))
	}
	return true
}
