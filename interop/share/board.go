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

// A process that opens handles of one maker again and again need not ask it each time. The two
// of them share a page, the board, which nobody else has. A handle that is made is offered there
// to the process that opened one in its segment last: a word of the board says so. That process
// takes it by exchanging the word for another, in one step and without a word to its maker, if
// it knows the segment already. The maker finds it when it needs to know: an offered lease does
// not end, nor is opened by anybody else, before the word was taken back, in one step too, so
// that either the one or the other has the lease. Everybody whom nothing was offered asks.
//
// Both words are made of all bytes of the handle. So a handle that was altered is not the one
// that is offered, and who has not got the handle cannot write the word that takes it: what else
// is written on a board takes nothing, and no board is another process's.

// boardSlots is how many handles are offered to a process at a time.
const boardSlots = 512

const boardBytes = 8 * boardSlots

// claim is what an offer of a handle is on the board: as long as it is there, and taken.
type claim struct{ offered, taken uint64 }

func claimOf(encoded string) claim {
	h := sha256.Sum256([]byte(encoded))
	c := claim{binary.LittleEndian.Uint64(h[:]) | 1, binary.LittleEndian.Uint64(h[8:]) &^ 1}
	if c.taken == 0 {
		c.taken = 2 // 0 is no claim
	}
	return c
}

// place is where a handle is offered; board 0 stands for nowhere.
type place struct {
	board uint64 // of the maker's, unlike all others that it had
	slot  uint16
}

// board is the maker's end. But for the memory all of it is under the mutex of the leases.
type board struct {
	id     uint64
	words  []atomic.Uint64
	leases [boardSlots]*lease
	free   []uint16
	memory *segment.Resource
	block  memmgr.Block
}

// newBoard makes one, and a descriptor of it for the other process.
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
		err = errors.New("it is no segment")
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

// wordsAt are those of memory that the system mapped.
func wordsAt(address uintptr) []atomic.Uint64 {
	return unsafe.Slice(*(**atomic.Uint64)(unsafe.Pointer(&address)), boardSlots)
}

func (b *board) end() {
	b.memory.Free(b.block)
	_ = b.memory.Close() // its one block is free
}

// showBoard gives the process that opens handles here a board, once. Without one, for want of
// memory or descriptors, it asks. Only the goroutine that reads calls it.
func (p *Peer) showBoard() error {
	if p.boardShown || p.node.maker == "" {
		return nil
	}
	p.boardShown = true
	b, file, err := newBoard()
	if err != nil {
		return nil
	}
	if !p.node.leases.hang(p, b) {
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

// hang takes a board in use, unless the connection is over.
func (t *leaseTable) hang(p *Peer, b *board) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
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

// maxOpeners bounds what is remembered of who opens what.
const maxOpeners = 1024

// openedBy remembers who opens handles in a segment. Under mu.
func (t *leaseTable) openedBy(l *lease, p *Peer) {
	if t.openers == nil || len(t.openers) >= maxOpeners {
		t.openers = map[segment.ID]*Peer{}
	}
	t.openers[l.d.segment.id] = p
}

// room finds where a lease that begins is offered: to the process that opened the last of its
// segment, if it may take it and has room. Under mu.
func (t *leaseTable) room(l *lease, o *Options) (p *Peer, at place) {
	p = t.openers[l.d.segment.id]
	if p == nil || p.board == nil || p.closed || l.asker != (process{}) || l.pending != nil || l.holder != nil && l.holder != p {
		return nil, place{}
	}
	b := p.board
	if len(b.free) == 0 {
		t.find(p)
	}
	if n := len(b.free); n > 0 && p.leases.n+boardSlots-n < o.MaxLeases {
		return p, place{b.id, b.free[n-1]}
	}
	return nil, place{}
}

// offer puts a lease on the board. Under mu.
func (t *leaseTable) offer(l *lease, p *Peer, at place) {
	b := p.board
	b.free = b.free[:len(b.free)-1]
	l.offeredTo, l.slot, l.claim = p, at.slot, claimOf(l.encoded)
	b.leases[at.slot] = l
	b.words[at.slot].Store(l.claim.offered)
}

// takeBack ends the offer of a lease, if there is one: from then on it is opened, or nobody but
// who asks opens it. Under mu.
func (t *leaseTable) takeBack(l *lease) (opened bool) {
	p := l.offeredTo
	if p == nil {
		return false
	}
	b := p.board
	opened = b.words[l.slot].Swap(0) == l.claim.taken
	b.leases[l.slot] = nil
	b.free = append(b.free, l.slot)
	l.offeredTo = nil
	if opened {
		t.begin(l, p)
	}
	return opened
}

// find takes note of what a process took. Under mu.
func (t *leaseTable) find(p *Peer) {
	b := p.board
	if b == nil || len(b.free) == boardSlots {
		return
	}
	for slot, l := range b.leases {
		if l != nil && b.words[slot].Load() == l.claim.taken {
			t.takeBack(l)
		}
	}
}

// findAll is find for all processes. Under mu.
func (t *leaseTable) findAll() {
	for p := range t.boards {
		t.find(p)
	}
}

// takeAllBack ends all offers to a process. Under mu.
func (t *leaseTable) takeAllBack(p *Peer) {
	if p.board == nil {
		return
	}
	for _, l := range p.board.leases {
		if l != nil {
			t.takeBack(l)
		}
	}
}

// takeDown takes the board of a connection that is over out of use, for the caller to end. Under
// mu.
func (t *leaseTable) takeDown(p *Peer) *board {
	b := p.board
	t.takeAllBack(p)
	p.board = nil
	delete(t.boards, p)
	for id, opener := range t.openers {
		if opener == p {
			delete(t.openers, id)
		}
	}
	return b
}

// claims is the end of the board in the process that opens. It is under the mutex of the
// connection.
type claims struct {
	id    uint64
	words []atomic.Uint64
	page  *segment.Mapping
}

// seen takes the maker's board, with its descriptor; nil where this process has none left.
func (p *Peer) seen(f frame, file *os.File) error {
	if file != nil {
		defer func() { _ = file.Close() }() // memory: nothing waits
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
		return fmt.Errorf("board %d, of one that has no more to show", id)
	}
	if file == nil {
		return nil
	}
	page, err := segment.Map(segment.Attachment{File: file, Size: uint64(os.Getpagesize()), Audience: segment.PeersWrite})
	switch {
	case errors.Is(err, segment.ErrSeals), errors.Is(err, segment.ErrAudience), errors.Is(err, segment.ErrSize):
		return fmt.Errorf("a board: %w", err)
	case err != nil: // not the maker's fault
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

// openOffered opens a handle that its maker offers to this process, in a segment that is known
// and mapped here, without a word to the maker: it finds that the handle was opened when it looks, and
// is told when the array is released. ok is false where the maker must be asked.
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
	k.arrays++ // keeps the mapping
	p.opened++
	p.mu.Unlock()
	a, err = p.arrayOf(k, m, &h.d)
	return a, true, err
}

// openable finds the mapping in which a handle can be opened without anything of the maker's.
// Under mu.
func (p *Peer) openable(h *Handle) (*held, *segment.Mapping) {
	k := p.held[h.d.segment.id]
	if p.over() != nil || p.claims == nil || p.claims.id != h.at.board || p.opened >= p.node.options.MaxLeases ||
		k == nil || k.facts != h.d.segment || k.asked || k.forgotten {
		return nil, nil
	}
	return k, k.maps[k.which(h.d.readOnly || h.d.segment.audience == segment.PeersRead)]
}

// blind takes the board of a connection that is over, for the caller to unmap. Under mu.
func (p *Peer) blind() *segment.Mapping {
	c := p.claims
	p.claims = nil
	if c == nil {
		return nil
	}
	return c.page
}
