package share

import (
	"crypto/subtle"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// lease is this process's memory in the hands of a handle or another process. It holds two
// of the buffer's references for as long as it lives: memory that has one reference counts
// as its owner's alone, and would fall asleep (memmgr.Pool.Sleep) under the other process.
type lease struct {
	d       description
	memory  memory
	buffer  memmgr.Buffer   // used by whoever took the lease out of the table, alone
	encoded string          // its handle; "" for one that needs none
	pending *usmarray.Array // whose work the opening waits for; nil for none
	holder  *Peer           // who opened it, or alone may; nil while anybody may
	asker   process         // who passes it on; the zero process for what this one exported itself
	opened  bool
	until   time.Time // of one that was not opened

	sequence uint64 // the number of a published version, for the answer of WaitNewer; else 0

	offeredTo *Peer // who may open it without asking; nil for nobody
	slot      uint16
	claim     claim

	among [2]struct{ next, former *lease } // in the lists
}

// letGo gives back what the lease holds. The caller took it out of the table, and holds no
// lock.
func (l *lease) letGo() {
	if l.pending != nil {
		l.pending.Release()
	}
	l.buffer.Release()
	l.buffer.Release()
}

// retainTwice takes the two references that keep memory awake and another process's, none
// where the memory is gone or asleep.
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

// leaseList is a row of leases; which says by which of their links.
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

// leaseTable is all leases of one maker. Every operation takes constant time, but for the
// end of a peer, which takes as long as it holds leases.
type leaseTable struct {
	mu       sync.Mutex
	last     uint64 // serial
	all      map[uint64]*lease
	unopened leaseList
	passed   int             // of those, the ones that another process asked for
	passedBy map[process]int // which process how many; there is none with 0
	closed   bool

	boards    map[*Peer]struct{}
	lastBoard uint64
	openers   map[segment.ID]*Peer // who opened the last handle in a segment
}

// add gives a lease its serial. encode makes its handle, nil for one that its holder gets
// without; that one counts as opened.
func (t *leaseTable) add(op string, l *lease, o *Options, encode func(*description, place) string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
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

// open consumes a handle for a peer that asks. It and takeBack are the only ways from unopened to
// opened, and a lease passes one of them once. The lease is the table's still; pending, if there is one, is the caller's.
func (t *leaseTable) open(op string, encoded []byte, serial uint64, by *Peer, o *Options) (l *lease, pending *usmarray.Array, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
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

// begin notes that a lease was opened. Under mu.
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

// unopenedLease finds the lease of a handle that may still be opened, and that is offered to
// nobody any more. Under mu.
func (t *leaseTable) unopenedLease(encoded []byte, serial uint64, by *Peer) *lease {
	l := t.all[serial]
	if l == nil || l.opened || l.holder != nil && l.holder != by ||
		subtle.ConstantTimeCompare([]byte(l.encoded), encoded) == 0 || t.takeBack(l) || time.Now().After(l.until) {
		return nil
	}
	return l
}

// take consumes a handle for this process itself: the lease is the caller's.
func (t *leaseTable) take(op string, encoded []byte, serial uint64, o *Options) (*lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.unopenedLease(encoded, serial, nil)
	if l == nil {
		return nil, opError(op, ErrStale, staleText, o.Unopened)
	}
	t.drop(l)
	return l, nil
}

// leaveUnopened takes a lease out of the list of those that wait. Under mu.
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

// drop takes a lease out of the table. Under mu.
func (t *leaseTable) drop(l *lease) {
	delete(t.all, l.d.serial)
	if !l.opened {
		t.leaveUnopened(l)
	}
	if l.holder != nil {
		l.holder.leases.remove(l, inHolder)
	}
}

// end ends leases that a peer holds, by serial, and returns those that it does not.
func (t *leaseTable) end(holder *Peer, serials []uint64) (unknown int) {
	ended := make([]*lease, 0, 8)
	t.mu.Lock()
	for _, serial := range serials {
		l := t.all[serial]
		if l != nil && l.offeredTo == holder && holder != nil { // who has it over took it before
			t.takeBack(l)
		}
		if l != nil && l.opened && l.holder == holder {
			t.drop(l)
			ended = append(ended, l)
		} else {
			unknown++
		}
	}
	t.mu.Unlock()
	letGo(ended)
	return unknown
}

// revoke ends one that nobody opened.
func (t *leaseTable) revoke(encoded []byte, serial uint64) bool {
	t.mu.Lock()
	l := t.all[serial]
	ok := l != nil && !l.opened && subtle.ConstantTimeCompare([]byte(l.encoded), encoded) == 1 && !t.takeBack(l)
	if ok {
		t.drop(l)
	}
	t.mu.Unlock()
	if ok {
		l.letGo()
	}
	return ok
}

// endOf ends all that a peer holds or alone may open; nothing begins for it any more.
func (t *leaseTable) endOf(holder *Peer) {
	var ended []*lease
	t.mu.Lock()
	holder.closed = true
	b := t.takeDown(holder)
	for l := holder.leases.first; l != nil; l = holder.leases.first {
		t.drop(l)
		ended = append(ended, l)
	}
	t.mu.Unlock()
	letGo(ended)
	if b != nil {
		b.end()
	}
}

// endUnopened ends the handles that a peer alone may open and has not; nothing begins for
// it any more, and what it opened stays.
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
	t.mu.Unlock()
	letGo(ended)
}

// expire ends those that nobody opened in time; all of them once the table is closed.
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
	t.mu.Unlock()
	letGo(ended)
}

// close ends what nobody opened, and lets nothing begin.
func (t *leaseTable) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.expire(time.Time{})
}

// counts tells how many wait for their opening, and how many are open.
func (t *leaseTable) counts() (unopened, opened int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.findAll()
	return t.unopened.n, len(t.all) - t.unopened.n
}

// heldBy tells how many a peer holds.
func (t *leaseTable) heldBy(p *Peer) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.find(p)
	return p.leases.n
}

func letGo(ended []*lease) {
	for _, l := range ended {
		l.letGo()
	}
}
