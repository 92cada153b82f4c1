package share

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// The board lets a process open a handle without a message to the maker of the handle.
//
// The maker and one opening process share a page of 8-byte words, the board. No other process maps
// it. When the maker exports an array, it offers the handle to the process that opened the last handle
// in the same segment: it stores the word "offered" of the handle in a free slot and writes the slot
// into the handle. If the opener has the segment mapped, it opens the handle by exchanging "offered"
// for "taken", with one compare-and-swap. Otherwise, and in any other process, opening asks the maker
// over the socket.
//
// The maker checks the word when it needs to. Before an offered lease ends or is opened by another
// process, the maker swaps the word for 0. If the old word was "taken", the opener has the lease.
// Otherwise the offer is withdrawn. Both operations are atomic, so that exactly one process gets the lease.
//
// If the word is still "taken" when the opener releases the array, the opener exchanges it for "released".
// When the maker next checks the word, for example in [Server.Revoke], it ends the lease without a
// message. If the maker does not check it within reportDelay, the opener changes the word back to "taken"
// and reports the release over the socket.
//
// All words are derived from a hash of all bytes of the handle, including its secret. An altered
// handle does not match the offer. A process without the handle cannot compute "taken" or "released", so
// that other values that it writes have no effect.
//
// The board saves a round trip for each array. On two cores, the call of a worker with an array takes 118 to
// 126 us with the board and 189 to 257 us without (BenchmarkSmallCall of package workers).

// boardSlots is the number of handles that can be offered to one process at a time.
const boardSlots = 512

const boardBytes = 8 * boardSlots

// claim holds the words of a handle: while it is offered, after the opener took it, and after the opener
// released the array. Their two lowest bits differ, and none is 0, which marks a free slot.
type claim struct{ offered, taken, released uint64 }

func claimOf(encoded string) claim {
	h := sha256.Sum256([]byte(encoded))
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(h[8*i:]) &^ 3 }
	return claim{word(0) | 1, word(1) | 2, word(2) | 3}
}

// place is the slot in which a handle is offered; board 0 means that it is not offered.
type place struct {
	board uint64 // number of the board, unique in the maker
	slot  uint16
}

// board is the maker's side of a board. The mutex of the leases guards everything but the words.
type board struct {
	id      uint64
	words   []atomic.Uint64
	offered leaseList
	free    []uint16
	memory  *segment.Resource
	block   memmgr.Block
}

// newBoard creates a board and a descriptor of its memory for the other process.
func newBoard() (b *board, file *os.File, err error) {
	b = &board{free: make([]uint16, 0, boardSlots)}
	if b.memory, err = segment.NewHost(segment.PeersWrite); err != nil {
		return nil, nil, err
	}
	if b.block, err = b.memory.Allocate(memmgr.Request{Size: boardBytes}); err != nil {
		return nil, nil, errors.Join(err, b.memory.Close())
	}
	s, _, ok := segment.Find(b.block.Address, boardBytes)
	if !ok {
		err = errors.New("the memory of a board is not in a segment")
	} else {
		file, err = s.File()
	}
	if err != nil {
		b.end()
		return nil, nil, err
	}
	b.words = wordsAt(b.block.Address)
	for slot := range uint16(boardSlots) {
		b.free = append(b.free, boardSlots-1-slot)
	}
	return b, file, nil
}

// wordsAt returns the words of a board that is mapped at an address.
func wordsAt(address uintptr) []atomic.Uint64 {
	return unsafe.Slice(*(**atomic.Uint64)(unsafe.Pointer(&address)), boardSlots)
}

func (b *board) end() {
	b.memory.Free(b.block)
	_ = b.memory.Close() // its only block is free, so Close cannot fail
}

// showBoard sends a board to a process that has opened its first handle. If memory or descriptors are short,
// no board is used, and the process opens all handles over the socket. Only the reading goroutine calls
// showBoard.
func (p *Peer) showBoard() error {
	if p.boardShown || p.node.maker == "" {
		return nil
	}
	p.boardShown = true
	b, file, err := newBoard()
	if err != nil {
		return nil
	}
	if !p.node.leases.addBoard(p, b) {
		_ = file.Close()
		b.end()
		return nil
	}
	p.mu.Lock()
	d := p.newDatagram()
	d.file = file
	d.b = appendFrame(d.b, frameBoard, 0, func(f []byte) []byte { return binary.LittleEndian.AppendUint64(f, b.id) })
	return p.post(d)
}

// addBoard assigns a board to a peer. It returns false if the connection has ended.
func (t *leaseTable) addBoard(p *Peer, b *board) bool {
	t.mu.Lock()
	defer t.unlock()
	if p.closed {
		return false
	}
	if t.boards == nil {
		t.boards = map[*Peer]struct{}{}
	}
	t.lastBoard++
	b.id = t.lastBoard
	p.board = b
	t.boards[p] = struct{}{}
	return true
}

// maxOpeners is the maximum size of the table of the last opener of each segment.
const maxOpeners = 1024

// opener is a key of the table of the last opener of each segment. The table has an entry for the last
// opener of a segment, and one for each process ID.
type opener struct {
	segment segment.ID
	pid     int // 0: any process
}

// openedBy records the process that opened a handle in a segment. t.mu is held.
func (t *leaseTable) openedBy(l *lease, p *Peer) {
	if t.openers == nil || len(t.openers) >= maxOpeners {
		t.openers = map[opener]*Peer{}
	}
	t.openers[opener{l.d.segment.id, 0}] = p
	t.openers[opener{l.d.segment.id, p.credentials.PID}] = p
}

// freeSlot returns the process and the slot to offer a new lease in: the process that opened the last
// handle of the segment, or that of ExportOptions.PID, if it may open this one and its board has a free
// slot. t.mu is held.
func (t *leaseTable) freeSlot(l *lease, o *Options) (p *Peer, at place) {
	p = t.openers[opener{l.d.segment.id, l.pid}]
	if p == nil || p.board == nil || p.closed || l.asker != (process{}) || l.pending != nil || l.holder != nil && l.holder != p {
		return nil, place{}
	}
	b := p.board
	if len(b.free) == 0 {
		t.checkBoard(p)
	}
	if n := len(b.free); n > 0 && p.leases.n+b.offered.n < o.MaxLeases {
		return p, place{b.id, b.free[n-1]}
	}
	return nil, place{}
}

// offer offers a lease in a slot. t.mu is held.
func (t *leaseTable) offer(l *lease, p *Peer, at place) {
	b := p.board
	b.free = b.free[:len(b.free)-1]
	l.offeredTo, l.slot, l.claim = p, at.slot, claimOf(l.encoded)
	b.offered.add(l, inOffered)
	b.words[at.slot].Store(l.claim.offered)
}

// withdrawOffer ends the offer of a lease, if there is one, and reports whether the opener has taken it. If
// the opener has released it too, the lease is dropped. t.mu is held; unlock it with t.unlock.
func (t *leaseTable) withdrawOffer(l *lease) (opened bool) {
	p := l.offeredTo
	if p == nil {
		return false
	}
	b := p.board
	word := b.words[l.slot].Swap(0)
	opened = word == l.claim.taken || word == l.claim.released
	b.offered.remove(l, inOffered)
	b.free = append(b.free, l.slot)
	l.offeredTo = nil
	if opened {
		t.begin(l, p)
	}
	if opened && word == l.claim.released {
		t.drop(l)
	}
	return opened
}

// checkOffer records whether a process has taken an offered lease, and whether it has released it. t.mu is
// held.
func (t *leaseTable) checkOffer(l *lease) {
	word := l.offeredTo.board.words[l.slot].Load()
	if word == l.claim.taken || word == l.claim.released {
		t.withdrawOffer(l)
	}
}

// checkBoard calls checkOffer for all leases that are offered to a process. t.mu is held.
func (t *leaseTable) checkBoard(p *Peer) {
	if p.board == nil {
		return
	}
	for l := p.board.offered.first; l != nil; {
		next := l.among[inOffered].next
		t.checkOffer(l)
		l = next
	}
}

// leasesOf checks the board of a process and returns the number of its leases. t.mu is held.
func (t *leaseTable) leasesOf(p *Peer) int {
	t.checkBoard(p)
	return p.leases.n
}

// withdrawOffers ends all offers to a process. t.mu is held.
func (t *leaseTable) withdrawOffers(p *Peer) {
	if p.board == nil {
		return
	}
	for l := p.board.offered.first; l != nil; l = p.board.offered.first {
		t.withdrawOffer(l)
	}
}

// removeBoard removes the board of a connection that has ended. The caller ends the board. t.mu is held.
func (t *leaseTable) removeBoard(p *Peer) *board {
	b := p.board
	t.withdrawOffers(p)
	p.board = nil
	delete(t.boards, p)
	for id, opener := range t.openers {
		if opener == p {
			delete(t.openers, id)
		}
	}
	return b
}

// claims is the opener's side of a board. The mutex of the connection guards it.
type claims struct {
	id    uint64
	words []atomic.Uint64
	page  *segment.Mapping
}

// release marks an array that was opened from the board as released. It returns false if the maker has
// already recorded that the array was opened; the release must then be reported in a message. The mutex of
// the connection is held.
func (c *claims) release(o *opened) bool {
	return c != nil && o.claim.taken != 0 && c.words[o.slot].CompareAndSwap(o.claim.taken, o.claim.released)
}

// unmark removes the mark of an array. It returns false if the maker has seen the mark and ended the lease.
// The mutex of the connection is held.
func (c *claims) unmark(o *opened) bool {
	return c != nil && c.words[o.slot].CompareAndSwap(o.claim.released, o.claim.taken)
}

// handleBoard maps the board of the maker. file is nil if this process had no descriptor left for it.
func (p *Peer) handleBoard(f frame, file *os.File) error {
	if file != nil {
		defer func() { _ = file.Close() }() // a file in memory closes without waiting
	}
	r := wireReader{b: f.payload}
	id := r.u64()
	if err := r.end("a board"); err != nil {
		return err
	}
	p.mu.Lock()
	again := p.claims != nil
	p.mu.Unlock()
	if again || id == 0 || p.address == "" {
		return fmt.Errorf("board %d: want one board with a number above 0, from a process that was dialled", id)
	}
	if file == nil {
		return nil
	}
	page, err := segment.Map(segment.Attachment{File: file, Size: uint64(os.Getpagesize()), Audience: segment.PeersWrite})
	switch {
	case errors.Is(err, segment.ErrSeals), errors.Is(err, segment.ErrAudience), errors.Is(err, segment.ErrSize):
		return fmt.Errorf("the memory of a board: %w", err)
	case err != nil: // a shortage in this process; opening asks the maker
		return nil
	}
	p.mu.Lock()
	over := p.err != nil
	if !over {
		p.claims = &claims{id, wordsAt(uintptr(page.Data())), page}
	}
	p.mu.Unlock()
	if over {
		_ = page.Close() // cannot fail
	}
	return nil
}

// openOffered opens a handle that its maker offers to this process in a segment that is mapped here. It
// sends no message. The release of the array is reported to the maker as usual. If ok is false, the
// maker must be asked.
func (p *Peer) openOffered(h *Handle) (a *usmarray.Array, ok bool, err error) {
	if h.at.board == 0 || int(h.at.slot) >= boardSlots {
		return nil, false, nil
	}
	c := claimOf(h.encoded)
	p.mu.Lock()
	k, m := p.openable(h)
	if m == nil || !p.claims.words[h.at.slot].CompareAndSwap(c.offered, c.taken) {
		p.mu.Unlock()
		return nil, false, nil
	}
	k.arrays++ // keeps the segment mapped
	p.opened++
	p.mu.Unlock()
	a, err = p.arrayOf(&opened{peer: p, held: k, lent: lentOf(&h.d), slot: h.at.slot, claim: c}, m, &h.d)
	return a, true, err
}

// openable returns the mapping in which a handle can be opened without asking the maker, or nil. p.mu is
// held.
func (p *Peer) openable(h *Handle) (*held, *segment.Mapping) {
	k := p.held[h.d.segment.id]
	if p.over() != nil || p.claims == nil || p.claims.id != h.at.board || p.opened >= p.node.options.MaxLeases ||
		k == nil || k.facts != h.d.segment || k.asked || k.forgotten {
		return nil, nil
	}
	return k, k.maps[k.mapIndex(h.d.readOnly || h.d.segment.audience == segment.PeersRead)]
}

// dropClaims removes the board of a connection that has ended and returns it. The caller unmaps it. p.mu is
// held.
func (p *Peer) dropClaims() *segment.Mapping {
	c := p.claims
	p.claims = nil
	if c == nil {
		return nil
	}
	return c.page
}
