package memmgr

import (
	"slices"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Cells remember queues as bare references, which must not dangle when the user
// closes a queue: the table below holds a reference of its own to each queue
// that live cells name, counted by cells.
type queueRecord struct {
	ref     uintptr // owned
	users   int     // cells that name it
	inOrder bool
	hash    uint64
	from    *syclobj.Queue // that was last found to be this queue
}

var queues = struct {
	mu     rankedMutex
	byRef  map[uintptr]*queueRecord
	byHash map[uint64][]*queueRecord
	// Queues on which exported memory was used before its queue of last use, counted: those
	// whom it was shown to there may still be at work, and tell nobody.
	former  map[*owner.Cell][]uintptr
	formers atomic.Int32 // cells in it
}{byRef: map[uintptr]*queueRecord{}, byHash: map[uint64][]*queueRecord{}, former: map[*owner.Cell][]uintptr{}}

// noteQueue records the queue of last use of a cell that its caller alone knows yet; for
// others see [moveTo]. A queue of the host, and one that is closed, is not recorded.
func noteQueue(c *owner.Cell, q *syclobj.Queue) {
	rec, _ := holdQueue(q)
	if rec != nil {
		noteRecord(c, rec)
		forgetQueue(rec.ref)
	}
}

// holdQueue counts one more user of a queue and returns its record, nil for none and for
// the host's, whose work is done when it is submitted; forgetQueue ends it. A closed queue
// is syclobj.ErrClosed.
func holdQueue(q *syclobj.Queue) (*queueRecord, error) {
	if q == nil || q.IsHost() {
		return nil, nil
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	rec, err := findQueue(q)
	if err != nil {
		return nil, err
	}
	rec.users++
	return rec, nil
}

// noteRecord records the queue of last use, which the caller holds, and counts the cell.
// addingPending is held, unless the caller alone knows the cell.
func noteRecord(c *owner.Cell, rec *queueRecord) {
	if c.Queue() == rec.ref {
		return
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	old := c.Queue()
	rec.users++
	c.SetQueue(rec.ref)
	if !keepFormer(c, old) {
		dropQueue(old)
	}
}

// keepFormer keeps the queue of last use of exported memory that is now used on another one,
// and its count; queues.mu is held.
func keepFormer(c *owner.Cell, q uintptr) bool {
	if q == 0 || c.Flags()&owner.Exported == 0 || queues.byRef[q] == nil {
		return false
	}
	kept := queues.former[c]
	if slices.Contains(kept, q) {
		return false
	}
	if kept == nil {
		queues.formers.Add(1)
	}
	queues.former[c] = append(kept, q)
	return true
}

// formerQueues are those that exported memory was used on before; they stay as long as the
// caller holds the cell.
func formerQueues(c *owner.Cell) []uintptr {
	if queues.formers.Load() == 0 {
		return nil
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	return slices.Clone(queues.former[c])
}

// takeFormer hands formerQueues of a cell that ends, and their counts, to the caller.
func takeFormer(c *owner.Cell) []uintptr {
	if queues.formers.Load() == 0 {
		return nil
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	kept := queues.former[c]
	if kept != nil {
		delete(queues.former, c)
		queues.formers.Add(-1)
	}
	return kept
}

// findQueue returns the record of a queue, making it on first use; queues.mu is
// held. Two Go objects may stand for one queue of the runtime.
func findQueue(q *syclobj.Queue) (*queueRecord, error) {
	rec, own, err := knownQueue(q)
	if rec != nil || err != nil {
		return rec, err
	}
	hash := q.Hash()
	r := &queueRecord{ref: own, inOrder: q.Properties()&syclobj.InOrder != 0, hash: hash, from: q}
	queues.byRef[own] = r
	queues.byHash[hash] = append(queues.byHash[hash], r)
	return r, nil
}

// knownQueue returns the record of a queue, or, if there is none, an owned reference of
// the queue; queues.mu is held. A borrowed reference would not do for comparing: whoever
// closes the queue beside us deletes it.
func knownQueue(q *syclobj.Queue) (rec *queueRecord, own uintptr, err error) {
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

// holdQueueRef counts another cell that names a queue of the table, and reports
// whether it is there: others may be gone before the cell is.
func holdQueueRef(ref uintptr) bool {
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

// forgetQueue ends a cell's use of its queue.
func forgetQueue(ref uintptr) {
	if ref == 0 {
		return
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	dropQueue(ref)
}

func forgetQueues(refs []uintptr) {
	for _, ref := range refs {
		forgetQueue(ref)
	}
}

// dropQueue is forgetQueue with queues.mu held. References that C put in a cell
// by itself are not in the table and are C's to keep alive.
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
	same := queues.byHash[r.hash]
	for i := range same {
		if same[i] == r {
			same = append(same[:i], same[i+1:]...)
			break
		}
	}
	if len(same) == 0 {
		delete(queues.byHash, r.hash)
	} else {
		queues.byHash[r.hash] = same
	}
	deleteQueueRef(r.ref)
}

// QueueRef implements Synchronizer.
func (events) QueueRef(q *syclobj.Queue) uintptr {
	if q == nil || q.IsHost() {
		return 0
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if len(queues.byHash[q.Hash()]) == 0 {
		return 0
	}
	rec, own, err := knownQueue(q)
	switch {
	case err != nil:
		return 0
	case rec == nil:
		deleteQueueRef(own)
		return 0
	}
	return rec.ref
}

// SameOrder implements Synchronizer.
func (events) SameOrder(a, b uintptr) bool {
	if a == 0 || a != b {
		return false
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	r := queues.byRef[a]
	return r != nil && r.inOrder
}
