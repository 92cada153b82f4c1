package front

import (
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// bin caches the free blocks of one class on one shard: the magazine in use, and a
// spare one that is full or empty.
type bin struct {
	block.Magazine
	spare   block.Magazine
	frees   uint64 // blocks freed by users, ever
	stocked int64  // blocks moved in from the depot, less those moved out
}

// blocks returns the number of blocks in the bin.
func (f *bin) blocks() uint32 { return f.N + f.spare.N }

// allocs returns the number of blocks handed out to users, ever: stocked + frees - blocks.
func (f *bin) allocs() uint64 { return uint64(f.stocked) + f.frees - uint64(f.blocks()) }

// uses counts allocations and frees, to see whether the bin was used meanwhile.
func (f *bin) uses() uint32 { return uint32(f.frees + f.allocs()) }

// Shard is the part of the front for one processor. It holds only the counts that the
// fast path must write; the other counts follow from them.
type Shard struct {
	busy uint32 // 1 while the processor works on it
	stop uint32 // 1 while another goroutine owns it, or wants to
	turn uint32 // orders the users for the race detector
	mu   sync.Mutex

	delta     int64  // allocated less freed and not published: bytes<<20 + blocks
	low       int64  // the shard needs work if delta is below it: see setLow
	asked     uint64 // bytes requested, ever
	unasked   uint64 // bytes requested of freed blocks, ever
	stocked   int64  // bytes moved in from the depot, less those moved out
	sent      int64  // bytes of delta published so far
	askedSent int64  // asked less unasked, as published
	limit     int64  // bytes that the bins may hold, taken from the budget
	pressed   bool   // the bins hold nothing: a request waits for memory
	evictNext int    // the class that evict visits next
	Shares    []Share
	bins      [block.NumClasses]bin
	seen      [block.NumClasses]binState
	last      Look // of the last call of age
	_         [128]byte
}

// binState is the state of a bin at the last call of age.
type binState struct {
	spare     owner.Link
	uses      uint32
	idle      uint8 // calls since the bin was used
	spareIdle uint8 // calls that found the same spare magazine
	spareUsed bool  // it was moved since the first of them: some of its blocks are needed
}

// idleSince returns a tick since which bin k was not used, 0 if it was used since the last call of age.
func (s *Shard) idleSince(k int) uint32 {
	l := &s.seen[k]
	if s.bins[k].uses() != l.uses {
		return 0
	}
	return s.last.Tick - uint32(l.idle)*s.last.Span
}

// Share is the part of a tenant's account on one shard, by the number of the tenant. Only the goroutine that
// holds the shard changes it.
type Share struct {
	Credit int64 // bytes that the shard may hand out; the account includes them
	Most   int64 // above this credit, half of it goes back to the tenant
	Epoch  uint32
	Usage
	_ [64]byte
}

// Usage has the totals of a tenant, or of a pool.
type Usage struct {
	Allocs, Frees  uint64
	Taken, Given   uint64 // bytes of blocks
	Asked, Unasked uint64 // the same in requested bytes
}

// Add adds the counts of another part.
func (u *Usage) Add(o Usage) {
	u.Allocs, u.Frees = u.Allocs+o.Allocs, u.Frees+o.Frees
	u.Taken, u.Given = u.Taken+o.Taken, u.Given+o.Given
	u.Asked, u.Unasked = u.Asked+o.Asked, u.Unasked+o.Unasked
}

// Take counts a block that the tenant gets.
func (u *Usage) Take(bytes int64, asked uint64) {
	u.Allocs++
	u.Taken += uint64(bytes)
	u.Asked += asked
}

// Give counts a block that the tenant releases.
func (u *Usage) Give(bytes int64, asked uint64) {
	u.Frees++
	u.Given += uint64(bytes)
	u.Unasked += asked
}

// GiveCredit counts the release of a block, whose bytes become credit. It returns the bytes that are to go back
// to the tenant.
func (r *Share) GiveCredit(bytes int64, asked uint64) (surplus int64) {
	r.Give(bytes, asked)
	if r.Credit += bytes; r.Credit > r.Most {
		surplus = r.Credit - r.Most/2
		r.Credit -= surplus
	}
	return surplus
}

// Cached returns the bytes in the bins: bytes moved in less bytes held by users.
func (s *Shard) Cached() int64 { return s.stocked - s.sent - s.change().Bytes }

// Requested returns the requested bytes of blocks that users got and released, ever.
func (s *Shard) Requested() (asked, unasked uint64) { return s.asked, s.unasked }

// Uses returns the blocks of a class that users got and released, ever.
func (s *Shard) Uses(k int) (allocs, frees uint64) { return s.bins[k].allocs(), s.bins[k].frees }

// claimFenced takes the shard on a system without a barrier for other processors: it uses a fence of
// its own. Like [Front.Claim], it returns nil while the shard is stopped.
func (s *Shard) claimFenced() *Shard {
	pin.Acquire(&s.turn) // first: the race detector takes the store for the whole synchronization
	atomic.StoreUint32(&s.busy, 1)
	if atomic.LoadUint32(&s.stop) != 0 {
		pin.Store(&s.busy, 0)
		return nil
	}
	return s
}

// claimLocked takes the shard where Pin is only a hint and two goroutines may use one shard: it uses
// the mutex. It returns nil while the shard is stopped.
func (s *Shard) claimLocked() *Shard {
	s.mu.Lock()
	if s.stop != 0 {
		s.mu.Unlock()
		return nil
	}
	return s
}

// Leave gives back the shard that [Front.Enter] or [Front.Claim] returned.
func (s *Shard) Leave() {
	if !pin.Fast {
		s.mu.Unlock()
		return
	}
	pin.Release(&s.turn)
	pin.Release(&s.busy)
	// On amd64 a plain store is a release.
	pin.Store(&s.busy, 0)
	pin.Unpin()
}

// Take removes a block of a class; nil when the magazine in use is empty.
func (s *Shard) Take(k int) *owner.Cell {
	f := &s.bins[k]
	c := f.Head.Cell()
	if c == nil {
		return nil
	}
	f.Head = c.Next
	f.N--
	return c
}

// TakeSpare is Take when the magazine in use is empty: it puts the spare one in its place.
func (s *Shard) TakeSpare(k int) *owner.Cell {
	f := &s.bins[k]
	f.Magazine, f.spare = f.spare, block.Magazine{}
	s.seen[k].spareUsed = true
	return s.Take(k)
}

// CountTake counts a block that Take returned.
func (s *Shard) CountTake(k int, requested uint64) {
	s.asked += requested
	s.delta += classDelta[k]
}

// CountPut counts a block that Put gets.
func (s *Shard) CountPut(k int, c *owner.Cell) {
	s.bins[k].frees++
	s.unasked += c.Requested
	s.delta -= classDelta[k]
}

// Put adds a block.
func (s *Shard) Put(k int, c *owner.Cell) { s.bins[k].Push(c) }

// stock makes m the magazine in use and adds its bytes, which the caller took from the budget, to
// the limit. It returns the magazine for which there is no room: the spare one if another goroutine
// stocked the bin meanwhile, and m itself while the pool is pressed.
func (s *Shard) stock(k int, m block.Magazine) (back block.Magazine) {
	if s.pressed {
		return m
	}
	f := &s.bins[k]
	m.Since = 0
	back, f.spare, f.Magazine = f.spare, f.Magazine, m
	s.seen[k].spareUsed = true
	s.moved(k, int64(m.N)-int64(back.N))
	s.limit += m.Bytes(k) - back.Bytes(k)
	return back
}

// unstock removes the spare magazine, for the depot, and its bytes of the limit. The magazine in use
// becomes the spare one.
func (s *Shard) unstock(k int) (m block.Magazine) {
	f := &s.bins[k]
	m, f.spare, f.Magazine = f.spare, f.Magazine, m
	s.seen[k].spareUsed = true
	s.moved(k, -int64(m.N))
	s.limit -= m.Bytes(k)
	s.setLow()
	return m
}

// moved counts blocks that moved in from the depot, or out if the number is negative.
func (s *Shard) moved(k int, blocks int64) {
	s.bins[k].stocked += blocks
	s.stocked += block.ClassBytes[k] * blocks
}

// evictOne moves a magazine of class k, the spare one if there is one, to a stack and returns its bytes. It does
// not change the limit.
func (s *Shard) evictOne(k int, to *block.Stack) (bytes int64) {
	return s.evictSince(k, s.idleSince(k), to)
}

// evictSince is evictOne for blocks that are idle since a tick.
func (s *Shard) evictSince(k int, since uint32, to *block.Stack) (bytes int64) {
	f := &s.bins[k]
	from := &f.spare
	if from.N == 0 {
		from = &f.Magazine
	}
	m := *from
	*from = block.Magazine{}
	if m.N == 0 {
		return 0
	}
	s.moved(k, -int64(m.N))
	m.Since = since
	to.Push(m)
	return m.Bytes(k)
}

// evictFrom moves all blocks of the classes from first on to out.
func (s *Shard) evictFrom(first int, out *block.Stack) {
	for k := first; k < block.NumClasses && s.Cached() != 0; k++ {
		for s.bins[k].blocks() != 0 {
			s.evictOne(k, out)
		}
	}
}

// evict moves magazines of at least that many bytes to out. It visits the classes in turn, like the hand
// of a clock. A shard without a limit caches only the block of class k that was put last.
func (s *Shard) evict(k int, bytes int64, out *block.Stack) {
	if s.limit == 0 {
		s.evictNext = k
	}
	for tries := block.NumClasses; tries > 0 && bytes > 0; tries-- {
		for s.bins[s.evictNext].blocks() != 0 && bytes > 0 {
			bytes -= s.evictOne(s.evictNext, out)
		}
		s.evictNext = (s.evictNext + 1) % block.NumClasses
	}
}

// age is the part of [Front.Age] for one stopped shard.
func (s *Shard) age(look Look, cold *block.Stack) {
	s.last = look
	for k := range s.bins {
		f, l := &s.bins[k], &s.seen[k]
		if uses := f.uses(); uses != l.uses {
			l.uses, l.idle = uses, 0
		} else if l.idle++; l.idle >= look.Least && f.blocks() != 0 {
			s.evictIdle(k, cold)
		}
		switch {
		case f.spare.N == 0:
			// Later calls see whether the blocks that are here now were needed.
			f.spare, f.Magazine = f.Magazine, f.spare
			fallthrough
		case f.spare.Head != l.spare:
			l.spare, l.spareIdle, l.spareUsed = f.spare.Head, 0, false
		default:
			if l.spareIdle++; l.spareIdle >= look.Least {
				s.evictIdle(k, cold)
			}
		}
		l.idle = min(l.idle, look.Least)
	}
}

// evictIdle moves the spare magazine to cold and subtracts its bytes from the limit. If the whole bin is
// idle, it moves both magazines. A spare magazine of which some blocks are needed counts as used now.
func (s *Shard) evictIdle(k int, cold *block.Stack) {
	l := &s.seen[k]
	since := s.last.Tick - uint32(s.last.Least)*s.last.Span
	if l.idle < s.last.Least && l.spareUsed {
		since = 0
	}
	for {
		bytes := s.evictSince(k, since, cold)
		s.limit -= bytes
		if bytes == 0 || l.idle < s.last.Least {
			return
		}
	}
}

// deltaShift is where the bytes begin in Shard.delta: the blocks lie in the bits below.
const deltaShift = 20

// classDelta is the number that a block of each class adds to Shard.delta.
var classDelta = func() (table [block.NumClasses]int64) {
	for k := range table {
		table[k] = block.ClassBytes[k]<<deltaShift + 1
	}
	return table
}()

// Change is the part of a shard's counts that is not published.
type Change struct {
	Bytes, Blocks, Asked int64
}

// setLow sets low, the value of delta below which the shard needs work: there is a change to publish, or the
// bins hold more bytes than the limit, which counts as -1 while the shard must cache nothing.
func (s *Shard) setLow() {
	limit := s.limit
	if s.pressed {
		limit = -1
	}
	room := max(s.stocked-s.sent-limit, -publishStep)
	s.low = min(room, publishStep) << deltaShift
}

// NeedsWork reports, after a put, whether a change must be published or blocks must leave the bin.
func (s *Shard) NeedsWork(k int) bool {
	return s.delta < s.low || s.bins[k].N >= block.MagazineSize[k]
}

// Grew reports, after a take, whether a change must be published.
func (s *Shard) Grew() bool { return s.delta > publishStep<<deltaShift }

// change returns the bytes and blocks that are not published.
func (s *Shard) change() Change {
	// The low bits are the blocks, as a signed number.
	blocks := s.delta << (64 - deltaShift) >> (64 - deltaShift)
	return Change{Bytes: (s.delta - blocks) >> deltaShift, Blocks: blocks}
}

// TakeChange returns the counts that are not published, for publishing. The shard is stopped.
func (s *Shard) TakeChange() Change {
	c := s.change()
	asked := int64(s.asked - s.unasked)
	c.Asked = asked - s.askedSent
	s.askedSent, s.delta = asked, 0
	s.sent += c.Bytes
	s.setLow()
	return c
}

// takeLargeChange is TakeChange if the change is large enough to publish: in bytes, or in blocks, of which
// delta holds fewer than 2^19 either way.
func (s *Shard) takeLargeChange() (c Change) {
	const limit, most = publishStep << deltaShift, 1 << (deltaShift - 2)
	if uint64(s.delta+limit) > 2*limit || uint64(s.change().Blocks+most) > 2*most {
		c = s.TakeChange()
	}
	return c
}

// glance reads the bytes in the bins and the unpublished change of a shard that may be
// in use. The result is an estimate while it is in use, and exact otherwise.
//
//go:norace
func (s *Shard) glance() (cached int64, c Change) {
	if !pin.Fast {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	for range 4 {
		stocked, sent := s.stocked, s.sent
		c = s.change()
		if stocked == s.stocked && sent == s.sent && c == s.change() {
			break
		}
	}
	return s.stocked - s.sent - c.Bytes, c
}

// ShareOf reads the credit and the blocks in use of a tenant's share while another goroutine may be
// changing it.
//
//go:norace
func (s *Shard) ShareOf(number uint32) (credit, blocks int64) {
	if !pin.Fast {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	share := &s.Shares[number]
	return share.Credit, int64(share.Allocs - share.Frees)
}
