package share

import (
	"crypto/subtle"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// lease is memory of this process that a handle or another process holds. It holds two references of the
// buffer: memory with a single reference counts as used by its owner only and could be put to sleep
// (memmgr.Pool.Sleep) while the other process uses it.
type lease struct {
	d       description
	memory  memory
	buffer  memmgr.Buffer   // used only by the goroutine that took the lease out of the table
	encoded string          // its handle; "" if it has none
	pending *usmarray.Array // the array whose pending work the opening waits for, or nil
	holder  *Peer           // the process that opened it, or the only one that may; nil while every process may
	pid     int             // of the process that will open it; 0: unknown
	asker   process         // the process that passes it on; zero if this process exported it itself
	opened  bool
	until   time.Time // end of a handle that is not opened

	sequence uint64 // the number of a published version, for the answer of WaitNewer; else 0

	offeredTo *Peer // the process that may open it without asking, or nil
	slot      uint16
	claim     claim

	among [2]struct{ next, former *lease } // in the lists
}

// release releases the references of the lease. The caller has taken it out of the table, and holds no
// lock.
func (l *lease) release() {
	if l.pending != nil {
		l.pending.Release()
	}
	l.buffer.Release()
	l.buffer.Release()
}

// retainTwice takes the two references of a lease. It fails, and takes none, if the memory is freed or
// asleep.
func retainTwice(op string, b memmgr.Buffer) error {
	if b.TryRetain() {
		if b.TryRetain() {
			return nil
		}
		b.Release()
	}
	if b.Asleep() {
		return opError(op, ErrNotShared, "the array's memory sleeps; Pool.Wake brings it back: %w", memmgr.ErrAsleep)
	}
	return opError(op, ErrNotShared, "the array's memory is gone: %w", memmgr.ErrReleased)
}

// leaseList is a linked list of leases; which selects their links.
type leaseList struct {
	first, last *lease
	n           int
}

const (
	inUnopened = iota // of a table, by age
	inHolder          // of one peer
)

func (r *leaseList) add(l *lease, which int) {
	l.among[which].former, l.among[which].next = r.last, nil
	if r.last == nil {
		r.first = l
	} else {
		r.last.among[which].next = l
	}
	r.last = l
	r.n++
}

func (r *leaseList) remove(l *lease, which int) {
	at := &l.among[which]
	if at.former == nil {
		r.first = at.next
	} else {
		at.former.among[which].next = at.next
	}
	if at.next == nil {
		r.last = at.former
	} else {
		at.next.among[which].former = at.former
	}
	at.next, at.former = nil, nil
	r.n--
}

// leaseTable holds all leases of one maker. Every operation takes constant time, except the end of a
// peer, which takes time proportional to its leases.
type leaseTable struct {
	mu       sync.Mutex
	last     uint64 // serial
	all      map[uint64]*lease
	unopened leaseList
	passed   int             // those that another process asked for
	passedBy map[process]int // their number by process; without zeros
	closed   bool

	boards    map[*Peer]struct{}
	lastBoard uint64
	openers   map[opener]*Peer
	over      []*lease // ended on a board; unlock releases them
}

// unlock unlocks mu and releases the leases that were found to have ended on a board.
func (t *leaseTable) unlock() {
	over := t.over
	t.over = nil
	t.mu.Unlock()
	releaseAll(over)
}

// add adds a lease and assigns its serial. encode makes its handle. With nil the holder needs no handle,
// and the lease counts as opened.
func (t *leaseTable) add(op string, l *lease, o *Options, encode func(*description, place) string) error {
	t.mu.Lock()
	defer t.unlock()
	if t.closed {
		return opError(op, ErrClosed, "no lease begins any more: the server was closed")
	}
	if l.holder != nil && l.holder.closed {
		return opError(op, ErrClosed, "the connection with %v is over, or was closed by Peer.Close", l.holder.credentials)
	}
	if l.holder != nil {
		t.find(l.holder) // counts too
	}
	if l.holder != nil && l.holder.leases.n >= o.MaxLeases {
		return opError(op, ErrLimit, "%v holds %d arrays, Options.MaxLeases", l.holder.credentials, o.MaxLeases)
	}
	if encode != nil && t.unopened.n >= o.MaxUnopened {
		return opError(op, ErrLimit, "%d handles wait for their opening, Options.MaxUnopened", t.unopened.n)
	}
	if l.asker != (process{}) {
		if most := max(o.MaxUnopened/maxPassedPart, 1); t.passedBy[l.asker] >= most {
			return opError(op, ErrLimit, "%d handles that process %d asked for wait for their opening, a part of Options.MaxUnopened", most, l.asker.pid)
		}
		if most := max(o.MaxUnopened/maxPassedAll, 1); t.passed >= most {
			return opError(op, ErrLimit, "%d handles that other processes asked for wait for their opening, a part of Options.MaxUnopened", most)
		}
		if t.passedBy == nil {
			t.passedBy = map[process]int{}
		}
		t.passedBy[l.asker]++
		t.passed++
	}
	t.last++
	l.d.serial = t.last
	if encode != nil {
		p, at := t.room(l, o)
		l.encoded = encode(&l.d, at)
		l.until = time.Now().Add(o.Unopened)
		t.unopened.add(l, inUnopened)
		if p != nil {
			t.offer(l, p, at)
		}
	} else {
		l.opened = true
	}
	if l.holder != nil {
		l.holder.leases.add(l, inHolder)
	}
	if t.all == nil {
		t.all = map[uint64]*lease{}
	}
	t.all[l.d.serial] = l
	return nil
}

// open consumes a handle for a peer that asks. A lease becomes open only by open or takeBack, once. The
// table keeps the lease. The caller owns pending, if it is not nil.
func (t *leaseTable) open(op string, encoded []byte, serial uint64, by *Peer, o *Options) (l *lease, pending *usmarray.Array, err error) {
	t.mu.Lock()
	defer t.unlock()
	if l = t.unopenedLease(encoded, serial, by); l == nil {
		return nil, nil, opError(op, ErrStale, staleText, o.Unopened)
	}
	if by.closed {
		return nil, nil, opError(op, ErrClosed, "the connection was closed there")
	}
	t.find(by) // counts too
	if l.holder == nil && by.leases.n >= o.MaxLeases {
		return nil, nil, opError(op, ErrLimit, "this process holds %d arrays, the most that it may", by.leases.n)
	}
	t.begin(l, by)
	t.openedBy(l, by)
	pending, l.pending = l.pending, nil
	return l, pending, nil
}

// begin records that a lease was opened. t.mu is held.
func (t *leaseTable) begin(l *lease, by *Peer) {
	t.leaveUnopened(l)
	l.opened = true
	if l.holder == nil {
		l.holder = by
		by.leases.add(l, inHolder)
	}
	l.encoded = ""
}

const staleText = "it was opened, revoked, not opened within %v, altered, or never made here"

// unopenedLease returns the lease of a handle that may still be opened, after ending its offer. t.mu is
// held.
func (t *leaseTable) unopenedLease(encoded []byte, serial uint64, by *Peer) *lease {
	l := t.all[serial]
	if l == nil || l.opened || l.holder != nil && l.holder != by ||
		subtle.ConstantTimeCompare([]byte(l.encoded), encoded) == 0 || t.takeBack(l) || time.Now().After(l.until) {
		return nil
	}
	return l
}

// take consumes a handle for this process itself. The caller owns the lease.
func (t *leaseTable) take(op string, encoded []byte, serial uint64, o *Options) (*lease, error) {
	t.mu.Lock()
	defer t.unlock()
	l := t.unopenedLease(encoded, serial, nil)
	if l == nil {
		return nil, opError(op, ErrStale, staleText, o.Unopened)
	}
	t.drop(l)
	return l, nil
}

// leaveUnopened removes a lease from the list of those that are not opened. t.mu is held.
func (t *leaseTable) leaveUnopened(l *lease) {
	t.unopened.remove(l, inUnopened)
	if l.asker != (process{}) {
		if t.passedBy[l.asker]--; t.passedBy[l.asker] == 0 {
			delete(t.passedBy, l.asker)
		}
		t.passed--
		l.asker = process{}
	}
}

// drop removes a lease from the table. t.mu is held.
func (t *leaseTable) drop(l *lease) {
	delete(t.all, l.d.serial)
	if !l.opened {
		t.leaveUnopened(l)
	}
	if l.holder != nil {
		l.holder.leases.remove(l, inHolder)
	}
}

// end ends leases that a peer holds, by their serials, and returns the number of serials that it does not
// hold.
func (t *leaseTable) end(holder *Peer, serials []uint64) (unknown int) {
	ended := make([]*lease, 0, 8)
	t.mu.Lock()
	for _, serial := range serials {
		l := t.all[serial]
		if l != nil && l.offeredTo == holder && holder != nil { // the peer took the offer before
			t.takeBack(l)
			l = t.all[serial]
		}
		if l != nil && l.opened && l.holder == holder {
			t.drop(l)
			ended = append(ended, l)
		} else {
			unknown++
		}
	}
	t.unlock()
	releaseAll(ended)
	return unknown
}

// revoke ends a handle that was not opened.
func (t *leaseTable) revoke(encoded []byte, serial uint64) bool {
	t.mu.Lock()
	l := t.all[serial]
	ok := l != nil && !l.opened && subtle.ConstantTimeCompare([]byte(l.encoded), encoded) == 1 && !t.takeBack(l)
	if ok {
		t.drop(l)
	}
	t.unlock()
	if ok {
		l.release()
	}
	return ok
}

// endOf ends all leases that a peer holds or that only it may open. No lease begins for it afterwards.
func (t *leaseTable) endOf(holder *Peer) {
	var ended []*lease
	t.mu.Lock()
	holder.closed = true
	b := t.takeDown(holder)
	for l := holder.leases.first; l != nil; l = holder.leases.first {
		t.drop(l)
		ended = append(ended, l)
	}
	t.unlock()
	releaseAll(ended)
	if b != nil {
		b.end()
	}
}

// endUnopened ends the handles that only a peer may open and that are not opened. No lease begins for it
// afterwards; opened ones stay.
func (t *leaseTable) endUnopened(holder *Peer) {
	var ended []*lease
	t.mu.Lock()
	holder.closed = true
	t.takeAllBack(holder)
	for l := holder.leases.first; l != nil; {
		next := l.among[inHolder].next
		if !l.opened {
			t.drop(l)
			ended = append(ended, l)
		}
		l = next
	}
	t.unlock()
	releaseAll(ended)
}

// expire ends the handles that were not opened in time, and all of them once the table is closed.
func (t *leaseTable) expire(now time.Time) {
	var ended []*lease
	t.mu.Lock()
	for l := t.unopened.first; l != nil && (t.closed || now.After(l.until)); l = t.unopened.first {
		if t.takeBack(l) {
			continue // it is no longer among them
		}
		t.drop(l)
		ended = append(ended, l)
	}
	t.unlock()
	releaseAll(ended)
}

// close ends all handles that are not opened, and prevents new leases.
func (t *leaseTable) close() {
	t.mu.Lock()
	t.closed = true
	t.unlock()
	t.expire(time.Time{})
}

// counts returns the numbers of leases that are not opened, and that are.
func (t *leaseTable) counts() (unopened, opened int) {
	t.mu.Lock()
	defer t.unlock()
	t.findAll()
	return t.unopened.n, len(t.all) - t.unopened.n
}

// waiting returns the number of handles that are not known to be opened.
func (t *leaseTable) waiting() int {
	t.mu.Lock()
	defer t.unlock()
	return t.unopened.n
}

// heldBy returns the number of leases that a peer holds.
func (t *leaseTable) heldBy(p *Peer) int {
	t.mu.Lock()
	defer t.unlock()
	t.find(p)
	return p.leases.n
}

func releaseAll(ended []*lease) {
	for _, l := range ended {
		l.release()
	}
}
