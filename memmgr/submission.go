package memmgr

import (
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Submission puts one piece of work that uses several buffers, and that somebody else
// submits, in its place: after what the buffers wait for, and before whatever waits for
// them from then on. Begin gives the events that the work starts after, End takes the
// event of the work.
//
//	var s memmgr.Submission
//	event := submit(queue, s.Begin(queue, buffers))
//	err := s.End(event)
//
// Unlike [Buffer.SetPending] for each buffer, it joins no events: the work comes after the
// old ones, so that its own stands for them. A Submission is used by one goroutine, and
// again after End; it allocates nothing on the Go heap for up to 32 buffers. The caller
// holds references of the buffers meanwhile.
type Submission struct {
	cells  []*owner.Cell
	marks  []uint32 // pendingChanges of each cell at Begin, odd where order alone does
	after  []unsafe.Pointer
	copies []uintptr // of the event, one for each cell
	spent  []uintptr // events to let go of
	failed error     // of work that Begin had to wait for
	record *queueRecord
	room   struct {
		cells  [32]*owner.Cell
		marks  [32]uint32
		after  [32]unsafe.Pointer
		copies [32]uintptr
		spent  [64]uintptr
	}
}

// pendingChanges counts in twos, for the cells of some numbers together, how often an event
// was put into one of them: addresses of events are used again, so that an event in a cell is
// not known to be the one that was there before by its address.
var pendingChanges [1024]atomic.Uint32

const (
	oneChange = 2
	sameOrder = 1
)

func changesOf(c *owner.Cell) *atomic.Uint32 {
	return &pendingChanges[c.Index()%uint32(len(pendingChanges))]
}

// Begin returns the events (sycl::event*) that work on the queue with these buffers must
// start after, beside the earlier work of the queue; they belong to the Submission and are
// valid until End, which must follow. It panics with a UseError when a buffer was released.
// The queue must not be one of the host backend, whose work needs no order.
func (s *Submission) Begin(q *syclobj.Queue, buffers []Buffer) []unsafe.Pointer {
	for _, b := range buffers {
		b.live("Submission.Begin")
	}
	s.cells, s.marks, s.after = s.room.cells[:0], s.room.marks[:0], s.room.after[:0]
	s.record, _ = holdQueue(q) // a closed queue takes no work either
	for _, b := range buffers {
		s.add(b.ref.Cell())
	}
	return s.after
}

// add takes a cell in, once.
func (s *Submission) add(c *owner.Cell) {
	for _, known := range s.cells {
		if known == c {
			return
		}
	}
	s.cells = append(s.cells, c)
	// The mark first: changes are counted last, so that what is read here is at least as new
	// as the mark, and End joins what is newer.
	mark := changesOf(c).Load()
	if s.record != nil && s.record.inOrder && c.Queue() == s.record.ref {
		// Whatever is pending comes before later work of that queue.
		s.marks = append(s.marks, mark|sameOrder)
		return
	}
	s.marks = append(s.marks, mark)
	event, failed := copyPending(c)
	if event != 0 {
		s.after = append(s.after, foreignPointer(event))
	}
	s.failed = both(s.failed, failed)
}

// End makes the buffers wait for the event (sycl::event*) of the submitted work, which it
// takes; nil says that nothing was submitted, and changes nothing. The error tells of work
// recorded before that has failed meanwhile, as SetPending's does; the event is recorded all
// the same.
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
		err = both(s.failed, s.put(uintptr(event)))
	}
	systemEvents.ReleaseEvents(s.spent)
	if s.record != nil {
		forgetQueue(s.record.ref)
	}
	clear(s.cells)
	s.cells, s.after, s.record, s.failed = nil, nil, nil, nil
	return err
}

// put puts the event, which it takes, into all cells.
func (s *Submission) put(event uintptr) (failed error) {
	addingPending.Lock()
	defer addingPending.Unlock()
	s.copies = append(s.room.copies[:0], make([]uintptr, len(s.cells))...)
	copyEvents(event, s.copies)
	// First, since cells share counts.
	for i, c := range s.cells {
		s.marks[i] ^= changesOf(c).Load()
	}
	for i, c := range s.cells {
		err := error(nil)
		if own := s.copies[i]; own != 0 {
			err = s.putInto(c, own, s.marks[i])
		} else {
			err = systemEvents.WaitEvent(event) // the last resort, and still right
		}
		if err != nil {
			failed = err
		}
	}
	s.spent = append(s.spent, event)
	return failed
}

// putInto puts an event, which it takes, into one cell. What was there before Begin is what
// the work started after; what came since (then changes has more than sameOrder) is joined.
// addingPending is held.
func (s *Submission) putInto(c *owner.Cell, event uintptr, changes uint32) error {
	if changes&^sameOrder != 0 || s.record == nil {
		return joinPending(c, s.record, event)
	}
	old := replacePending(c, s.record, event)
	if old == 0 {
		return nil
	}
	s.spent = append(s.spent, old)
	// Failures on one queue are told by the next wait for an event of it; those on another
	// nobody would wait for any more.
	if changes&sameOrder == 0 && systemEvents.EventDone(old) {
		return systemEvents.WaitEvent(old) // at once
	}
	return nil
}
