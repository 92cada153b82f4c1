package share

import (
	"crypto/subtle"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// lease keeps memory of this process allocated for a handle or for another process. It holds a reference
// of the buffer.
type lease struct {
	d       description
	memory  memory
	buffer  memmgr.Buffer   // used only by the goroutine that took the lease out of the table
	encoded string          // the handle; "" without one, or once it is opened
	pending *usmarray.Array // the array whose pending work the opening waits for, or nil
	holder  *Peer           // the process that opened it, or the only one that may; nil while every process may
	pid     int             // ID of the process that will open it, or 0 if unknown
	asker   process         // the process that asked for the handle to pass the array on; zero if this process exported it
	opened  bool
	until   time.Time // when the handle expires if it is not opened

	sequence uint64 // number of the published version, if the lease answers WaitNewer, else 0

	offeredTo *Peer // the peer on whose board the handle is offered, or nil
	slot      uint16
	claim     claim

	among [3]struct{ next, former *lease } // links of the lists, see leaseList
}

// release releases the memory. The caller has taken the lease out of the table, and holds no lock.
func (l *lease) release() {
	if l.pending != nil {
		l.pending.Release()
	}
	l.buffer.Release()
}

// retain takes the reference of a lease. It fails if the memory was freed.
func retain(op string, b memmgr.Buffer) error {
	if b.TryRetain() {
		return nil
	}
	return opError(op, ErrNotShared, "the array's memory was freed: %w", memmgr.ErrReleased)
}

// leaseList is a linked list of leases. The argument which of its methods selects the links to use.
type leaseList struct {
	first, last *lease
	n           int
}

const (
	inUnopened = iota // leaseTable.unopened, oldest first; after the end of a lease leaseTable.over
	inHolder          // Peer.leases
	inOffered         // board.offered, oldest first
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

// leaseTable holds all leases of one maker. Operations take constant time, apart from the offers on the
// board of a peer that they look at, and the end of a peer, which takes time proportional to its leases.
type leaseTable struct {
	mu       sync.Mutex
	last     uint64 // the last serial that was assigned
	all      map[uint64]*lease
	unopened leaseList
	passed   int             // number of unopened handles that other processes asked for
	passedBy map[process]int // the same by process; without zeros
	closed   bool

	boards    map[*Peer]struct{}
	lastBoard uint64
	openers   map[opener]*Peer
	over      leaseList // leases that have ended; unlock releases them
}

// unlock unlocks mu and releases the leases in over.
func (t *leaseTable) unlock() {
	l := t.over.first
	t.over = leaseList{}
	t.mu.Unlock()
	for l != nil {
		next := l.among[inUnopened].next
		l.release()
		l = next
	}
}

// add adds a lease to the table and assigns its serial. encode makes the handle. If encode is nil, the
// lease needs no handle and counts as opened. If add fails, the caller releases the lease.
func (t *leaseTable) add(op string, l *lease, o *Options, encode func(*description, place) string) error {
	t.mu.Lock()
	defer t.unlock()
	if t.closed {
		return opError(op, ErrClosed, "the server was closed")
	}
	if l.holder != nil && l.holder.closed {
		return opError(op, ErrClosed, "the connection with %v has ended, or was closed by Peer.Close", l.holder.credentials)
	}
	if l.holder != nil && t.leasesOf(l.holder) >= o.MaxLeases {
		return opError(op, ErrLimit, "%v holds %d arrays, the maximum; raise Options.MaxLeases", l.holder.credentials, o.MaxLeases)
	}
	if encode != nil && t.unopened.n >= o.MaxUnopened {
		return opError(op, ErrLimit, "%d handles are not opened yet, the maximum; raise Options.MaxUnopened", t.unopened.n)
	}
	if l.asker != (process{}) {
		if most := max(o.MaxUnopened/maxPassedPart, 1); t.passedBy[l.asker] >= most {
			return opError(op, ErrLimit, "%d handles that process %d asked for are not opened yet, the maximum for one process; raise Options.MaxUnopened", most, l.asker.pid)
		}
		if most := max(o.MaxUnopened/maxPassedAll, 1); t.passed >= most {
			return opError(op, ErrLimit, "%d handles that other processes asked for are not opened yet, the maximum; raise Options.MaxUnopened", most)
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
		p, at := t.freeSlot(l, o)
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

// open consumes a handle at the request of a peer. Only open and withdrawOffer make a lease opened, each lease
// once. The table keeps the lease. The caller owns pending, if it is not nil.
func (t *leaseTable) open(op string, encoded []byte, serial uint64, by *Peer, o *Options) (l *lease, pending *usmarray.Array, err error) {
	t.mu.Lock()
	defer t.unlock()
	if l = t.unopenedLease(encoded, serial, by); l == nil {
		return nil, nil, opError(op, ErrStale, staleText, o.Unopened)
	}
	if by.closed {
		return nil, nil, opError(op, ErrClosed, "the maker has closed the connection")
	}
	if l.holder == nil && t.leasesOf(by) >= o.MaxLeases {
		return nil, nil, opError(op, ErrLimit, "this process holds %d arrays of the maker, the maximum; raise Options.MaxLeases of the maker", by.leases.n)
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

const staleText = "the handle was opened before, was revoked, was not opened within %v, was altered, or was not made by this server"

// unopenedLease returns the lease of a handle that may still be opened, after ending its offer. t.mu is
// held.
func (t *leaseTable) unopenedLease(encoded []byte, serial uint64, by *Peer) *lease {
	l := t.all[serial]
	if l == nil || l.opened || l.holder != nil && l.holder != by ||
		subtle.ConstantTimeCompare([]byte(l.encoded), encoded) == 0 || t.withdrawOffer(l) || time.Now().After(l.until) {
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
	t.remove(l)
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

// drop ends a lease. t.unlock releases it. t.mu is held.
func (t *leaseTable) drop(l *lease) {
	t.remove(l)
	t.over.add(l, inUnopened)
}

// remove removes a lease from the table. t.mu is held.
func (t *leaseTable) remove(l *lease) {
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
	t.mu.Lock()
	defer t.unlock()
	for _, serial := range serials {
		l := t.all[serial]
		if l != nil && l.offeredTo == holder && holder != nil { // the peer may have opened it on its board
			t.withdrawOffer(l)
			l = t.all[serial]
		}
		if l != nil && l.opened && l.holder == holder {
			t.drop(l)
		} else {
			unknown++
		}
	}
	return unknown
}

// revoke ends a handle that was not opened.
func (t *leaseTable) revoke(encoded []byte, serial uint64) bool {
	t.mu.Lock()
	defer t.unlock()
	l := t.all[serial]
	ok := l != nil && !l.opened && subtle.ConstantTimeCompare([]byte(l.encoded), encoded) == 1 && !t.withdrawOffer(l)
	if ok {
		t.drop(l)
	}
	return ok
}

// endOf ends all leases that a peer holds or that only it may open. Afterwards no lease is made for it.
func (t *leaseTable) endOf(holder *Peer) {
	t.mu.Lock()
	holder.closed = true
	b := t.removeBoard(holder)
	for l := holder.leases.first; l != nil; l = holder.leases.first {
		t.drop(l)
	}
	t.unlock()
	if b != nil {
		b.end()
	}
}

// endUnopened ends the unopened handles that only a peer may open. Afterwards no lease is made for it. Its
// opened leases stay.
func (t *leaseTable) endUnopened(holder *Peer) {
	t.mu.Lock()
	defer t.unlock()
	holder.closed = true
	t.withdrawOffers(holder)
	for l := holder.leases.first; l != nil; {
		next := l.among[inHolder].next
		if !l.opened {
			t.drop(l)
		}
		l = next
	}
}

// expire ends the handles that were not opened in time, and all of them once the table is closed.
func (t *leaseTable) expire(now time.Time) {
	t.mu.Lock()
	defer t.unlock()
	for l := t.unopened.first; l != nil && (t.closed || now.After(l.until)); l = t.unopened.first {
		if t.withdrawOffer(l) {
			continue // it was opened, so it is no longer in the list
		}
		t.drop(l)
	}
}

// close ends all handles that are not opened, and prevents new leases.
func (t *leaseTable) close() {
	t.mu.Lock()
	t.closed = true
	t.unlock()
	t.expire(time.Time{})
}

// counts returns the number of unopened leases and of opened leases.
func (t *leaseTable) counts() (unopened, opened int) {
	t.mu.Lock()
	defer t.unlock()
	for p := range t.boards {
		t.checkBoard(p)
	}
	return t.unopened.n, len(t.all) - t.unopened.n
}

// waiting returns the number of unopened handles, without checking the boards.
func (t *leaseTable) waiting() int {
	t.mu.Lock()
	defer t.unlock()
	return t.unopened.n
}

// heldBy returns the number of leases that a peer holds.
func (t *leaseTable) heldBy(p *Peer) int {
	t.mu.Lock()
	defer t.unlock()
	return t.leasesOf(p)
}
