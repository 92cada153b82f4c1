package order

import (
	"slices"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/syclobj"
)

// queueRecord is a queue that cells name. A cell contains only the address of a queue. So
// that this stays valid when the user closes the queue, the record owns a reference.
type queueRecord struct {
	ref     uintptr // owned
	users   int     // cells that name the queue
	inOrder bool
	hash    uint64
	from    *syclobj.Queue // the Go object that was last found to be this queue
}

var queues = struct {
	mu     block.Mutex
	byRef  map[uintptr]*queueRecord
	byHash map[uint64][]*queueRecord
	// Queues beside the queue of last use on which other libraries may have unreported work on
	// memory that they have seen. Each entry counts as a user of the queue.
	others     map[*owner.Cell][]uintptr
	withOthers atomic.Int32 // cells in others
}{byRef: map[uintptr]*queueRecord{}, byHash: map[uint64][]*queueRecord{}, others: map[*owner.Cell][]uintptr{}}

// NoteQueue records the queue of last use of a cell that no other goroutine knows yet; for
// other cells see [moveTo]. Closed queues and queues of the host are not recorded.
func NoteQueue(c *owner.Cell, q *syclobj.Queue) {
	rec, _ := retainQueue(q)
	if rec != nil {
		noteRecord(c, rec)
		endSurplus(c)
		releaseQueues(rec.ref)
	}
}

// retainQueue adds a user to a queue and returns its record, which it makes on first use; the caller ends the use with
// releaseQueues. The record is nil for a nil queue and for one of the host, whose work is done
// when it is submitted. The error is syclobj.ErrClosed if the queue is closed.
func retainQueue(q *syclobj.Queue) (*queueRecord, error) {
	if q == nil || q.IsHost() {
		return nil, nil
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	rec, own, err := lookUpQueue(q)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		rec = &queueRecord{ref: own, inOrder: q.Properties()&syclobj.InOrder != 0, hash: q.Hash(), from: q}
		queues.byRef[own] = rec
		queues.byHash[rec.hash] = append(queues.byHash[rec.hash], rec)
	}
	rec.users++
	return rec, nil
}

// noteRecord records the queue of last use of a cell and adds the cell to its users. The
// caller is a user of the queue. addingPending is held, unless no other goroutine knows the
// cell. It may leave a surplus of queues: see endSurplus.
func noteRecord(c *owner.Cell, rec *queueRecord) {
	old := c.Queue()
	if old == rec.ref {
		return
	}
	queues.mu.Lock()
	rec.users++
	c.SetQueue(rec.ref)
	// Other libraries may still have unreported work on the former queue.
	if c.Flags()&(owner.Exported|owner.Imported|owner.OnQueues|owner.CUDA) == 0 || !addOther(c, old) {
		dropQueue(old)
	}
	queues.mu.Unlock()
}

// addOther adds a queue to the other queues of a cell, and reports whether it did: then the cell
// becomes or stays a user of the queue. queues.mu is held.
func addOther(c *owner.Cell, q uintptr) bool {
	others := queues.others[c]
	if q == 0 || queues.byRef[q] == nil {
		return false
	}
	if i := slices.Index(others, q); i >= 0 { // the last one was shared last
		queues.others[c] = append(slices.Delete(others, i, i+1), q)
		return false
	}
	if others == nil {
		queues.withOthers.Add(1)
	}
	queues.others[c] = append(others, q)
	return true
}

// DropQueues removes the queues that are recorded for a dead cell.
func DropQueues(c *owner.Cell) {
	last := c.Queue()
	if last == 0 && queues.withOthers.Load() == 0 {
		return
	}
	c.SetQueue(0)
	queues.mu.Lock()
	defer queues.mu.Unlock()
	dropQueue(last)
	others := queues.others[c]
	if others == nil {
		return
	}
	delete(queues.others, c)
	queues.withOthers.Add(-1)
	for _, q := range others {
		dropQueue(q)
	}
}

// lookUpQueue returns the record of a queue or, if there is none, an owned reference to the
// queue. Two Go objects may stand for one SYCL queue. queues.mu is held. The comparison needs
// an owned reference, because another goroutine may close the queue meanwhile.
func lookUpQueue(q *syclobj.Queue) (rec *queueRecord, own uintptr, err error) {
	same := queues.byHash[q.Hash()]
	for _, r := range same {
		if r.from == q && q.Ref() != nil {
			return r, 0, nil
		}
	}
	ref, err := q.CopyRef()
	if err != nil {
		return nil, 0, err
	}
	own = uintptr(ref)
	for _, r := range same {
		if equalQueueRefs(r.ref, own) {
			deleteQueueRef(own)
			r.from = q
			return r, 0, nil
		}
	}
	return nil, own, nil
}

// RetainQueue adds a user to a queue that is in the table, and reports whether it is there.
func RetainQueue(ref uintptr) bool {
	if ref == 0 {
		return false
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	r := queues.byRef[ref]
	if r == nil {
		return false
	}
	r.users++
	return true
}

// releaseQueues removes a user of each queue.
func releaseQueues(refs ...uintptr) {
	if len(refs) == 0 {
		return
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	for _, ref := range refs {
		dropQueue(ref)
	}
}

// dropQueue removes a user of a queue while queues.mu is held. It ignores 0 and references that C code put into
// a cell: they are not in the table, and C keeps them valid.
func dropQueue(ref uintptr) {
	r := queues.byRef[ref]
	if r == nil {
		return
	}
	r.users--
	if r.users > 0 {
		return
	}
	delete(queues.byRef, ref)
	same := slices.DeleteFunc(queues.byHash[r.hash], func(other *queueRecord) bool { return other == r })
	if queues.byHash[r.hash] = same; len(same) == 0 {
		delete(queues.byHash, r.hash)
	}
	deleteQueueRef(r.ref)
}

// QueueRef implements Synchronizer.
func (Events) QueueRef(q *syclobj.Queue) uintptr {
	if q == nil || q.IsHost() {
		return 0
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if len(queues.byHash[q.Hash()]) == 0 {
		return 0
	}
	rec, own, _ := lookUpQueue(q)
	if rec == nil {
		deleteQueueRef(own) // ignores 0
		return 0
	}
	return rec.ref
}

// SameOrder implements Synchronizer.
func (Events) SameOrder(a, b uintptr) bool {
	if a == 0 || a != b {
		return false
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	r := queues.byRef[a]
	return r != nil && r.inOrder
}

// HoldQueues locks the table of queues until the returned function is called. For tests.
func HoldQueues() (let func()) {
	queues.mu.Lock()
	return queues.mu.Unlock
}

func init() {
	owner.DropQueues = DropQueues
	block.SetRank(&addingPending, block.RankPendingChange)
	block.SetRank(&queues.mu, block.RankLeaf)
}
