package memmgr

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// pendingSet holds dead cells whose memory is still in use by submitted work. Their
// events stay in the cells, and so does everything that the set needs to know of
// each: a block that waits takes no memory of its own.
//
// The blocks of a queue stand in a list in the order in which they came, linked by
// cell numbers through Cell.Magazine. Those of one class on an in-order queue, which
// a request for that queue may have at once, stand in another, through Cell.Next.
// Blocks whose work has not ended for stallTime leave both for a list of their own:
// they cost a look now and then, and nobody waits for them. Entering, leaving and
// finding are O(1).
type pendingSet struct {
	queues  map[uintptr]*pendingQueue
	ring    []*pendingQueue // the values of queues, for going round
	turn    int             // where in the ring the next look begins
	newest  map[pendingKey]uint32
	stalled pendingQueue
	spare   *pendingQueue // an empty one: queues come and go with one block

	n     int // stalled ones included
	bytes uint64

	stamp uint64             // of the block that came last
	marks [stallTicks]uint64 // the stamp at each of the last ticks
	late  uint64             // blocks up to this stamp have waited for stallTime
	ever  uint64             // blocks that have stalled
	told  uint64             // and been reported
}

// pendingKey sorts blocks that wait for an in-order queue.
type pendingKey struct {
	queue uintptr
	class int
}

// pendingQueue is what waits for one queue, oldest first.
type pendingQueue struct {
	ref         uintptr
	inOrder     bool
	at          int // in the ring
	n           int
	first, last uint32
	cursor      uint32 // where looking behind the first ones goes on
	sweep       uint32 // where completeAll goes on
	batch       int    // how many to ask for at once: more while they are done
}

// While a block waits, Cell.Private tells its class in the low bits, whether it has
// stalled, whether it was waited for since, and when it came: a number that no other
// block of the pool has had.
const (
	pendingClassBits = 14
	pendingStalled   = 1 << pendingClassBits
	pendingProbed    = 2 << pendingClassBits
	pendingStampAt   = pendingClassBits + 2
)

func pendingClass(c *owner.Cell) int    { return int(c.Private & (1<<pendingClassBits - 1)) }
func pendingStamp(c *owner.Cell) uint64 { return c.Private >> pendingStampAt }
func hasStalled(c *owner.Cell) bool     { return c.Private&pendingStalled != 0 }

// links are the numbers of the cells before and behind in one of the two lists.
type links uint64

func linksOf(before, behind uint32) links { return links(before)<<32 | links(behind) }
func (l links) before() uint32            { return uint32(l >> 32) }
func (l links) behind() uint32            { return uint32(l) }

// queueLinks are those in the list of a queue; classLinks those among blocks of one
// class on it, where before is the newer one.
func queueLinks(c *owner.Cell) *links { return (*links)(&c.Magazine) }
func classLinks(c *owner.Cell) *links { return (*links)(unsafe.Pointer(&c.Next)) }

func (s *pendingSet) init() {
	s.queues, s.newest = map[uintptr]*pendingQueue{}, map[pendingKey]uint32{}
}

// add takes a block in. sameOrder tells of a queue that is new here whether it is
// in-order.
func (s *pendingSet) add(c *owner.Cell, sameOrder func(a, b uintptr) bool) {
	setState(c, statePending)
	s.stamp++
	class := int(c.Private)
	c.Private = s.stamp<<pendingStampAt | uint64(class)
	q := s.queue(c.Queue(), sameOrder)
	q.push(c)
	*classLinks(c) = 0
	if q.inOrder {
		k := pendingKey{q.ref, class}
		old := s.newest[k]
		*classLinks(c) = linksOf(0, old)
		if old != 0 {
			next := classLinks(owner.At(old))
			*next = linksOf(c.Index(), next.behind())
		}
		s.newest[k] = c.Index()
	}
	s.n++
	s.bytes += c.Size
}

// queue returns the record of a queue, making it on first use.
func (s *pendingSet) queue(ref uintptr, sameOrder func(a, b uintptr) bool) *pendingQueue {
	if q := s.queues[ref]; q != nil {
		return q
	}
	q := s.spare
	s.spare = nil
	if q == nil {
		q = &pendingQueue{}
	}
	*q = pendingQueue{ref: ref, inOrder: ref != 0 && sameOrder(ref, ref), at: len(s.ring), batch: firstBatch}
	s.queues[ref] = q
	s.ring = append(s.ring, q)
	return q
}

// remove takes a block out, wherever it stands.
func (s *pendingSet) remove(c *owner.Cell) {
	setState(c, stateInHand)
	q := s.queues[c.Queue()]
	if hasStalled(c) {
		q = &s.stalled
	} else {
		s.unclass(q, c)
	}
	s.drop(q, c)
	c.Private = uint64(pendingClass(c))
	s.n--
	s.bytes -= c.Size
}

// drop takes a block out of a queue's list, and with the last one the queue.
func (s *pendingSet) drop(q *pendingQueue, c *owner.Cell) {
	q.unlink(c)
	if q.n != 0 || q == &s.stalled {
		return
	}
	delete(s.queues, q.ref)
	last := len(s.ring) - 1
	s.ring[q.at] = s.ring[last]
	s.ring[q.at].at = q.at
	s.ring[last] = nil
	s.ring = s.ring[:last]
	s.spare = q
}

// unclass takes a block out of the list of its class.
func (s *pendingSet) unclass(q *pendingQueue, c *owner.Cell) {
	if !q.inOrder {
		return
	}
	l := *classLinks(c)
	if l.behind() != 0 {
		older := classLinks(owner.At(l.behind()))
		*older = linksOf(l.before(), older.behind())
	}
	if l.before() != 0 {
		newer := classLinks(owner.At(l.before()))
		*newer = linksOf(newer.before(), l.behind())
		return
	}
	k := pendingKey{q.ref, pendingClass(c)}
	if l.behind() == 0 {
		delete(s.newest, k)
		return
	}
	s.newest[k] = l.behind()
}

// stall puts a block aside that has waited for too long.
func (s *pendingSet) stall(c *owner.Cell) {
	q := s.queues[c.Queue()]
	s.unclass(q, c)
	s.drop(q, c)
	c.Private |= pendingStalled
	setState(c, stateStalled)
	s.stalled.pushFront(c) // before those that were probed
	s.ever++
}

// refs lists the queues that blocks wait for.
func (s *pendingSet) refs() []uintptr {
	refs := make([]uintptr, len(s.ring))
	for i, q := range s.ring {
		refs[i] = q.ref
	}
	return refs
}

// tick notes the time: blocks that came stallTicks ago and wait still have stalled.
func (s *pendingSet) tick(tick uint32) {
	mark := &s.marks[tick%stallTicks]
	s.late, *mark = max(s.late, *mark), s.stamp
}

// oldest returns the block that has waited longest and has not stalled, nil when
// there is none.
func (s *pendingSet) oldest() *owner.Cell {
	var found *owner.Cell
	for _, q := range s.ring {
		if c := owner.At(q.first); found == nil || pendingStamp(c) < pendingStamp(found) {
			found = c
		}
	}
	return found
}

// probe returns a block that has stalled and was not probed, nil when there is none.
// Those that were go to the end of the list.
func (s *pendingSet) probe() *owner.Cell {
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

// push puts a block behind the others.
func (q *pendingQueue) push(c *owner.Cell) {
	*queueLinks(c) = linksOf(q.last, 0)
	if q.last != 0 {
		l := queueLinks(owner.At(q.last))
		*l = linksOf(l.before(), c.Index())
	} else {
		q.first = c.Index()
	}
	q.last = c.Index()
	q.n++
}

// pushFront puts a block before the others.
func (q *pendingQueue) pushFront(c *owner.Cell) {
	*queueLinks(c) = linksOf(0, q.first)
	if q.first != 0 {
		l := queueLinks(owner.At(q.first))
		*l = linksOf(c.Index(), l.behind())
	} else {
		q.last = c.Index()
	}
	q.first = c.Index()
	q.n++
}

// unlink takes a block out; whoever stood on it goes on behind it.
func (q *pendingQueue) unlink(c *owner.Cell) {
	l := *queueLinks(c)
	if q.cursor == c.Index() {
		q.cursor = l.behind()
	}
	if q.sweep == c.Index() {
		q.sweep = l.behind()
	}
	if l.before() != 0 {
		b := queueLinks(owner.At(l.before()))
		*b = linksOf(b.before(), l.behind())
	} else {
		q.first = l.behind()
	}
	if l.behind() != 0 {
		b := queueLinks(owner.At(l.behind()))
		*b = linksOf(l.before(), b.behind())
	} else {
		q.last = l.before()
	}
	q.n--
	*queueLinks(c) = 0
}
