package memmgr

import (
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// bin caches the free blocks of one class on one shard: the magazine in use, and a
// spare one that is full or empty.
type bin struct {
	magazine
	spareN  uint32
	spare   owner.Link
	frees   uint64 // blocks freed by users, ever
	stocked int64  // blocks moved in from the depot, less those moved out
}

// blocks returns the number of blocks in the bin.
func (f *bin) blocks() uint32 { return f.n + f.spareN }

// allocs returns the number of blocks handed out to users, ever: stocked + frees - blocks.
func (f *bin) allocs() uint64 { return uint64(f.stocked) + f.frees - uint64(f.blocks()) }

// uses counts allocations and frees, to see whether the bin was used meanwhile.
func (f *bin) uses() uint32 { return uint32(f.frees + f.allocs()) }

// shard is the part of the front for one processor. It holds only the counts that the
// fast path must write; the other counts follow from them.
type shard struct {
	busy uint32 // 1 while the processor works on it
	stop uint32 // 1 while another goroutine owns it, or wants to
	turn uint32 // orders the users for the race detector
	mu   sync.Mutex

	delta     int64        // allocated less freed and not published: bytes<<20 + blocks
	low       int64        // the shard needs work if delta is below it: see setLow
	asked     uint64       // bytes requested, ever
	unasked   uint64       // bytes requested of freed blocks, ever
	stocked   int64        // bytes moved in from the depot, less those moved out
	sent      int64        // bytes of delta published so far
	askedSent int64        // asked less unasked, as published
	limit     int64        // bytes that the bins may hold, taken from the budget
	pressed   bool         // the bins hold nothing: a request waits for memory
	hand      int          // the class that evict visits next
	rooms     []tenantRoom // by the number of the tenant
	bins      [numClasses]bin
	looked    [numClasses]binLook
	_         [128]byte
}

// binLook is the state of a bin at the last call of age.
type binLook struct {
	spare     owner.Link
	uses      uint32
	idle      uint8 // calls since the bin was used
	spareIdle uint8 // calls since the spare magazine was used
}

// cached returns the bytes in the bins: bytes moved in less bytes held by users.
func (s *shard) cached() int64 { return s.stocked - s.sent - s.change().bytes }

// claimFenced takes the shard on a system without a barrier for other processors: it uses a fence of
// its own. Like [front.claim], it returns nil while the shard is stopped.
func (s *shard) claimFenced() *shard {
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
func (s *shard) claimLocked() *shard {
	s.mu.Lock()
	if s.stop != 0 {
		s.mu.Unlock()
		return nil
	}
	return s
}

// leave gives back the shard that front.enter or front.claim returned.
func (s *shard) leave() {
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

// take removes a block of a class; nil when the magazine in use is empty.
func (s *shard) take(k int) *owner.Cell {
	f := &s.bins[k]
	c := f.head.Cell()
	if c == nil {
		return nil
	}
	f.head = c.Next
	f.n--
	return c
}

func (s *shard) countTake(k int, requested uint64) {
	s.asked += requested
	s.delta += classDelta[k]
}

func (s *shard) countPut(k int, c *owner.Cell) {
	s.bins[k].frees++
	s.unasked += c.Requested
	s.delta -= classDelta[k]
}

// put adds a block.
func (s *shard) put(k int, c *owner.Cell) { s.bins[k].push(c) }

// takeSpare is take when the magazine in use is empty: it puts the spare one in its place.
func (s *shard) takeSpare(k int) *owner.Cell {
	f := &s.bins[k]
	f.magazine = magazine{f.spare, f.spareN}
	f.spare, f.spareN = 0, 0
	return s.take(k)
}

// stock makes m the magazine in use and adds its bytes, which the caller took from the budget, to
// the limit. It returns the magazine for which there is no room: the spare one if another goroutine
// stocked the bin meanwhile, and m itself while the pool is pressed.
func (s *shard) stock(k int, m magazine) (back magazine) {
	if s.pressed {
		return m
	}
	f := &s.bins[k]
	back = magazine{f.spare, f.spareN}
	f.spare, f.spareN = f.head, f.n
	f.magazine = m
	s.moved(k, int64(m.n)-int64(back.n))
	s.limit += classBytes[k] * (int64(m.n) - int64(back.n))
	s.setLow()
	return back
}

// unstock removes the spare magazine, for the depot, and its bytes of the limit. The magazine in use
// becomes the spare one.
func (s *shard) unstock(k int) magazine {
	f := &s.bins[k]
	m := magazine{f.spare, f.spareN}
	f.spare, f.spareN = f.head, f.n
	f.magazine = magazine{}
	s.moved(k, -int64(m.n))
	s.limit -= classBytes[k] * int64(m.n)
	s.setLow()
	return m
}

// moved counts blocks that moved in from the depot, or out if the number is negative.
func (s *shard) moved(k int, blocks int64) {
	s.bins[k].stocked += blocks
	s.stocked += classBytes[k] * blocks
}

// remove removes a magazine from a bin: the spare one if there is one.
func (s *shard) remove(k int) (m magazine) {
	f := &s.bins[k]
	if f.spareN != 0 {
		m = magazine{f.spare, f.spareN}
		f.spare, f.spareN = 0, 0
	} else {
		m, f.magazine = f.magazine, m
	}
	s.moved(k, -int64(m.n))
	return m
}

// evictOne moves a magazine of class k to a stack and returns its bytes. It does not change the limit.
func (s *shard) evictOne(k int, to *magazineStack) (bytes int64) {
	m := s.remove(k)
	if m.n == 0 {
		return 0
	}
	to.push(m)
	return m.bytes(k)
}

// evict moves magazines of at least that many bytes to out. It visits the classes in turn, like the hand
// of a clock. A shard without a limit caches only the block of class k that was put last.
func (s *shard) evict(k int, bytes int64, out *magazineStack) {
	if s.limit == 0 {
		s.hand = k
	}
	for tries := numClasses; tries > 0 && bytes > 0; tries-- {
		for s.bins[s.hand].blocks() != 0 && bytes > 0 {
			bytes -= s.evictOne(s.hand, out)
		}
		s.hand = (s.hand + 1) % numClasses
	}
}

// age is the part of [front.age] for one stopped shard.
func (s *shard) age(cold *magazineStack) {
	for k := range s.bins {
		f, l := &s.bins[k], &s.looked[k]
		if uses := f.uses(); uses != l.uses {
			l.uses, l.idle = uses, 0
		} else if l.idle++; l.idle >= looks && f.blocks() != 0 {
			s.evictIdle(k, cold)
		}
		if f.spare == 0 {
			// Later calls see whether the blocks that are here now were needed.
			f.spare, f.spareN, f.magazine = f.head, f.n, magazine{}
			l.spareIdle = 0
		}
		if f.spare != l.spare {
			l.spare, l.spareIdle = f.spare, 0
		} else if l.spareIdle++; f.spare != 0 && l.spareIdle >= looks {
			s.evictIdle(k, cold)
		}
		l.idle = min(l.idle, looks)
	}
}

// evictIdle moves the spare magazine to cold and subtracts its bytes from the limit. If the whole bin is
// idle, it moves both magazines.
func (s *shard) evictIdle(k int, cold *magazineStack) {
	for {
		bytes := s.evictOne(k, cold)
		s.limit -= bytes
		if bytes == 0 || s.looked[k].idle < looks {
			return
		}
	}
}

// deltaShift is where the bytes begin in shard.delta: the blocks lie in the bits below.
const deltaShift = 20

// change is the part of a shard's counts that is not published.
type change struct {
	bytes, blocks, asked int64
}

// setLow sets low, the value of delta below which the shard needs work: there is a change to publish, or the
// bins hold more bytes than the limit, which counts as -1 while the shard must cache nothing.
func (s *shard) setLow() {
	limit := s.limit
	if s.pressed {
		limit = -1
	}
	room := max(s.stocked-s.sent-limit, -peakStep)
	s.low = min(room, peakStep) << deltaShift
}

// needsWork reports, after a put, whether a change must be published or blocks must leave the bin.
func (s *shard) needsWork(k int) bool {
	return s.delta < s.low || s.bins[k].n >= magazineSize[k]
}

// isDue reports whether a change is large enough to publish: in bytes, or in blocks,
// of which delta holds fewer than 2^19 either way.
func (s *shard) isDue() bool {
	const limit, most = peakStep << deltaShift, 1 << (deltaShift - 2)
	return uint64(s.delta+limit) > 2*limit || uint64(s.change().blocks+most) > 2*most
}

// change returns the bytes and blocks that are not published.
func (s *shard) change() change {
	// The low bits are the blocks, as a signed number.
	blocks := s.delta << (64 - deltaShift) >> (64 - deltaShift)
	return change{bytes: (s.delta - blocks) >> deltaShift, blocks: blocks}
}

// takeChange returns the counts that are not published, for publishing.
func (s *shard) takeChange() change {
	c := s.change()
	asked := int64(s.asked - s.unasked)
	c.asked = asked - s.askedSent
	s.askedSent, s.delta = asked, 0
	s.sent += c.bytes
	s.setLow()
	return c
}

// glance reads the bytes in the bins and the unpublished change of a shard that may be
// in use. The result is an estimate while it is in use, and exact otherwise.
//
//go:norace
func (s *shard) glance() (cached, bytes, blocks int64) {
	if !pin.Fast {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.change()
		return s.cached(), c.bytes, c.blocks
	}
	for range 4 {
		stocked, sent, c := s.stocked, s.sent, s.change()
		if stocked == s.stocked && sent == s.sent && c == s.change() {
			return stocked - sent - c.bytes, c.bytes, c.blocks
		}
	}
	c := s.change()
	return s.stocked - s.sent - c.bytes, c.bytes, c.blocks
}
