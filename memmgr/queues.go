package memmgr

import (
	"sync"

	"github.com/usmbridge/usmbridge/memmgr/owner"
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
	mu     sync.Mutex
	byRef  map[uintptr]*queueRecord
	byHash map[uint64][]*queueRecord
}{byRef: map[uintptr]*queueRecord{}, byHash: map[uint64][]*queueRecord{}}

// noteQueue records the queue of last use of a cell and reports whether it is
// another one than before.
func noteQueue(c *owner.Cell, q *syclobj.Queue) bool {
	ref := uintptr(0)
	if q != nil {
		ref = uintptr(q.Ref())
	}
	if ref == 0 {
		return false // the host's queue: its work is done when it is submitted
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	old := c.Queue()
	rec := findQueue(q, ref)
	if rec == nil || rec.ref == old {
		return false
	}
	rec.users++
	c.SetQueue(rec.ref)
	dropQueue(old)
	return true
}

// holdQueue counts one more user of a queue and returns its record, nil for the host's
// queue; forgetQueue ends it.
func holdQueue(q *syclobj.Queue) *queueRecord {
	ref := uintptr(q.Ref())
	if ref == 0 {
		return nil
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	rec := findQueue(q, ref)
	if rec != nil {
		rec.users++
	}
	return rec
}

// noteRecord is noteQueue for a queue that the caller holds by its record.
func noteRecord(c *owner.Cell, rec *queueRecord) {
	if c.Queue() == rec.ref {
		return
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	old := c.Queue()
	rec.users++
	c.SetQueue(rec.ref)
	dropQueue(old)
}

// findQueue returns the record of a queue, making it on first use; queues.mu is
// held. Two Go objects may stand for one queue of the runtime.
func findQueue(q *syclobj.Queue, ref uintptr) *queueRecord {
	hash := q.Hash()
	for _, r := range queues.byHash[hash] {
		if r.from == q {
			return r
		}
		if equalQueueRefs(r.ref, ref) {
			r.from = q
			return r
		}
	}
	own := copyQueueRef(ref)
	if own == 0 {
		return nil
	}
	r := &queueRecord{ref: own, inOrder: q.Properties()&syclobj.InOrder != 0, hash: hash}
	queues.byRef[own] = r
	queues.byHash[hash] = append(queues.byHash[hash], r)
	return r
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
	ref := uintptr(q.Ref())
	if ref == 0 {
		return 0
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	for _, r := range queues.byHash[q.Hash()] {
		if equalQueueRefs(r.ref, ref) {
			return r.ref
		}
	}
	return 0
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
