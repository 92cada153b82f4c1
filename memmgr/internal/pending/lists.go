package pending

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// lists has the lists of pending blocks. All that it stores about a block is in the cell:
//
//   - Each queue has a list in the order of release, linked by cell numbers in Cell.Magazine.
//   - Blocks of one class on an in-order queue, of which a request for that queue may take any, form
//     another list, linked in Cell.Next.
//   - Stalled blocks are in neither of them but in the list stalled.
//
// To add, remove and find a block is O(1).
type lists struct {
	queues  map[uintptr]*queueList
	newest  map[classKey]uint32
	stalled queueList
	unused  *queueList // for the next queue: a queue often has one block only
}

// classKey identifies a list of blocks of one class on an in-order queue.
type classKey struct {
	queue uintptr
	class int
}

// queueList is the list of the blocks that wait for work on one queue, oldest first.
type queueList struct {
	ref         uintptr
	inOrder     bool
	n           int
	first, last uint32
	cursor      uint32 // where queries behind the first blocks continue
	sweep       uint32 // where CompleteAll continues
	batch       int    // number of blocks to query at once
}

// While a block is pending, Cell.Private has its class in the low bits, then two flags (the block
// has stalled; it was probed since), then its stamp, which no other block of the pool has had.
const (
	pendingClassBits = 14
	pendingStalled   = 1 << pendingClassBits
	pendingProbed    = 2 << pendingClassBits
	pendingStampAt   = pendingClassBits + 2
)

func pendingClass(c *owner.Cell) int    { return int(c.Private & (1<<pendingClassBits - 1)) }
func pendingStamp(c *owner.Cell) uint64 { return c.Private >> pendingStampAt }
func hasStalled(c *owner.Cell) bool     { return c.Private&pendingStalled != 0 }

// links are the cell numbers of the neighbours in a list, 0 for none.
type links uint64

func linksOf(before, behind uint32) links { return links(before)<<32 | links(behind) }
func (l links) before() uint32            { return uint32(l >> 32) }
func (l links) behind() uint32            { return uint32(l) }

// queueLinks are the links in the list of a queue. classLinks are those in the list of a class,
// where the newest block is the first.
func queueLinks(c *owner.Cell) *links { return (*links)(&c.Magazine) }
func classLinks(c *owner.Cell) *links { return (*links)(unsafe.Pointer(&c.Next)) }

// connect makes two cells neighbours in a list; 0 is its end. at returns the links of a cell in it.
func connect(before, behind uint32, at func(*owner.Cell) *links) {
	if before != 0 {
		l := at(owner.At(before))
		*l = linksOf(l.before(), behind)
	}
	if behind != 0 {
		l := at(owner.At(behind))
		*l = linksOf(before, l.behind())
	}
}

func newLists() lists {
	return lists{
		queues: map[uintptr]*queueList{}, newest: map[classKey]uint32{}, stalled: queueList{batch: firstBatch},
	}
}

// push adds a block with a new stamp. sameOrder is that of [Synchronizer].
func (s *lists) push(c *owner.Cell, stamp uint64, sameOrder func(a, b uintptr) bool) {
	class := int(c.Private)
	c.Private = stamp<<pendingStampAt | uint64(class)
	q := s.queue(c.Queue(), sameOrder)
	q.push(c)
	*classLinks(c) = 0
	if !q.inOrder {
		return
	}
	k := classKey{q.ref, class}
	connect(c.Index(), s.newest[k], classLinks)
	s.newest[k] = c.Index()
}

// queue returns the list of a queue, and adds it on first use.
func (s *lists) queue(ref uintptr, sameOrder func(a, b uintptr) bool) *queueList {
	if q := s.queues[ref]; q != nil {
		return q
	}
	q := s.unused
	s.unused = nil
	if q == nil {
		q = &queueList{}
	}
	*q = queueList{ref: ref, inOrder: ref != 0 && sameOrder(ref, ref), batch: firstBatch}
	s.queues[ref] = q
	return q
}

// unlink removes a block and resets Cell.Private to its class.
func (s *lists) unlink(c *owner.Cell) {
	if hasStalled(c) {
		s.stalled.unlink(c)
	} else {
		s.unlinkQueued(c)
	}
	c.Private = uint64(pendingClass(c))
}

// unlinkQueued removes a block from the lists of its queue and of its class, and an empty queue.
func (s *lists) unlinkQueued(c *owner.Cell) {
	q := s.queues[c.Queue()]
	if q.inOrder {
		l, k := *classLinks(c), classKey{q.ref, pendingClass(c)}
		connect(l.before(), l.behind(), classLinks)
		switch {
		case l.before() != 0:
		case l.behind() != 0:
			s.newest[k] = l.behind()
		default:
			delete(s.newest, k)
		}
	}
	q.unlink(c)
	if q.n == 0 {
		delete(s.queues, q.ref)
		s.unused = q
	}
}

// oldest returns the oldest block that has not stalled, nil if there is none.
func (s *lists) oldest() *owner.Cell {
	var found *owner.Cell
	for _, q := range s.queues {
		if c := owner.At(q.first); found == nil || pendingStamp(c) < pendingStamp(found) {
			found = c
		}
	}
	return found
}

// nextProbe returns a stalled block that was not probed and marks it as probed; nil if there is
// none. Probed blocks are at the end of the list.
func (s *lists) nextProbe() *owner.Cell {
	q := &s.stalled
	if q.first == 0 {
		return nil
	}
	c := owner.At(q.first)
	if c.Private&pendingProbed != 0 {
		return nil
	}
	c.Private |= pendingProbed
	q.unlink(c)
	q.push(c)
	return c
}

// push adds a block at the end, pushFront one at the front.
func (q *queueList) push(c *owner.Cell)      { q.insert(c, q.last, 0) }
func (q *queueList) pushFront(c *owner.Cell) { q.insert(c, 0, q.first) }

// insert adds a block between two neighbours, of which 0 is the end of the list.
func (q *queueList) insert(c *owner.Cell, before, behind uint32) {
	*queueLinks(c) = 0
	connect(before, c.Index(), queueLinks)
	connect(c.Index(), behind, queueLinks)
	if before == 0 {
		q.first = c.Index()
	}
	if behind == 0 {
		q.last = c.Index()
	}
	q.n++
}

// unlink removes a block. A cursor on it moves to the next block.
func (q *queueList) unlink(c *owner.Cell) {
	l := *queueLinks(c)
	if q.cursor == c.Index() {
		q.cursor = l.behind()
	}
	if q.sweep == c.Index() {
		q.sweep = l.behind()
	}
	connect(l.before(), l.behind(), queueLinks)
	if l.before() == 0 {
		q.first = l.behind()
	}
	if l.behind() == 0 {
		q.last = l.before()
	}
	q.n--
	*queueLinks(c) = 0
}
