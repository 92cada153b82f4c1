package order

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// pendingChanges counts, in steps of oneChange, how often an event was put into a cell. Cells
// whose index modulo the length is equal share a count. Comparing the events
// themselves is not enough, because the address of an event is used again after its release.
var pendingChanges [1024]atomic.Uint32

const (
	oneChange = 2
	sameOrder = 1
)

func changesOf(c *owner.Cell) *atomic.Uint32 {
	return &pendingChanges[c.Index()%uint32(len(pendingChanges))]
}

// Add adds a cell, unless it is there already.
func (s *Submission) Add(c *owner.Cell) {
	if slices.Contains(s.cells, c) {
		return
	}
	s.cells = append(s.cells, c)
	// Read the mark before the event: writers count after they have put the event. Thus the
	// event read here is at least as new as the mark, and End joins all newer ones.
	mark := changesOf(c).Load()
	if s.add(c) {
		mark |= sameOrder
	}
	s.marks = append(s.marks, mark)
}

// earlier has the events that work on a queue must start after.
type earlier struct {
	record *queueRecord     // the queue; nil for work on the host, or on an unknown queue
	after  []unsafe.Pointer // owned
	failed error            // of barriers on the queues of other libraries
}

// add adds the events of all work on the memory of a cell. ordered reports that the pending event is not among
// them, because the queue runs later work after it.
func (e *earlier) add(c *owner.Cell) (ordered bool) {
	if c.Flags()&owner.Seen != 0 {
		e.addShared(context.Background(), c)
	}
	e.failed = errors.Join(e.failed, waitUsedFor(context.Background(), c))
	if e.record != nil && e.record.inOrder && c.Queue() == e.record.ref {
		return true
	}
	if event := pendingEvent(c); event != 0 {
		e.after = append(e.after, owner.Pointer(event))
	}
	return false
}

// wait waits for the events, and returns the first failure.
func (e *earlier) wait() (failed error) {
	for _, event := range e.after {
		if err := System.WaitEvent(uintptr(event)); failed == nil {
			failed = err
		}
	}
	return failed
}

// put puts the event into all cells and takes ownership of it.
func (s *Submission) put(event uintptr) (failed error) {
	defer func() {
		for _, c := range s.cells {
			endSurplus(c)
		}
	}()
	lockPending()
	defer addingPending.Unlock()
	s.copies = append(s.room.copies[:0], make([]uintptr, len(s.cells))...)
	copyEvents(event, s.copies)
	// Before the loop that changes counts, because cells share counts.
	for i, c := range s.cells {
		s.marks[i] ^= changesOf(c).Load()
	}
	for i, c := range s.cells {
		err := error(nil)
		if own := s.copies[i]; own != 0 {
			err = s.putInto(c, own, s.marks[i])
		} else {
			err = System.WaitEvent(event) // there is no copy for this cell
		}
		if err != nil {
			failed = err
		}
	}
	s.spent = append(s.spent, event)
	return failed
}

// putInto puts an event into one cell and takes ownership of it. The event replaces one from
// before Begin, because the work started after that. It is joined with an event that was added
// later; then changes has more bits than sameOrder. addingPending is held.
func (s *Submission) putInto(c *owner.Cell, event uintptr, changes uint32) error {
	if changes&^sameOrder != 0 || s.record == nil {
		return joinPending(c, s.record, event)
	}
	old := replacePending(c, s.record, event)
	if old == 0 {
		return nil
	}
	s.spent = append(s.spent, old)
	// A later wait for an event of the same queue reports the failures of that queue. Failures
	// of another queue would be lost with the event.
	if changes&sameOrder == 0 && System.EventDone(old) {
		return System.WaitEvent(old) // does not block
	}
	return nil
}

// Submission orders work that uses the memory of several cells: it starts after the pending work of the
// cells, and later uses wait for it. Begin, Add for each cell, After and End follow each other.
type Submission struct {
	earlier
	cells  []*owner.Cell
	marks  []uint32  // pendingChanges of each cell at Begin; odd if the order of the queue is enough
	copies []uintptr // of the event of the work, one for each cell
	spent  []uintptr // events to release at the end
	room   struct {
		cells  [32]*owner.Cell
		marks  [32]uint32
		after  [32]unsafe.Pointer
		copies [32]uintptr
		spent  [64]uintptr
	}
}

// Begin begins with work on a queue.
func (s *Submission) Begin(q *syclobj.Queue) {
	s.cells, s.marks, s.after = s.room.cells[:0], s.room.marks[:0], s.room.after[:0]
	s.record, _ = retainQueue(q) // a closed queue fails when the caller submits
}

// After returns the events (sycl::event*) that the work must start after. They are valid until End.
func (s *Submission) After() []unsafe.Pointer { return s.after }

// End records the event (sycl::event*) of the work in the cells and takes ownership of it; nil if nothing was
// submitted. The error is that of earlier work.
func (s *Submission) End(event unsafe.Pointer) error {
	s.spent = s.room.spent[:0]
	for _, e := range s.after {
		s.spent = append(s.spent, uintptr(e))
	}
	var err error
	switch {
	case event == nil:
	case len(s.cells) == 0:
		s.spent = append(s.spent, uintptr(event))
	default:
		err = errors.Join(s.failed, s.put(uintptr(event)))
	}
	System.ReleaseEvents(s.spent)
	if s.record != nil {
		releaseQueues(s.record.ref)
	}
	clear(s.cells)
	s.cells, s.earlier = nil, earlier{}
	return err
}
