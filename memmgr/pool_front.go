package memmgr

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// magazine is a stack of dead cells that keep their blocks, all of one class,
// linked through the cells.
type magazine struct {
	head owner.Link
	n    uint32
}

// bin holds the free blocks of one class on one shard: a magazine in use, and a
// spare one that is full or empty.
type bin struct {
	magazine
	spareN  uint32
	spare   owner.Link
	frees   uint64 // blocks that users gave back, ever
	stocked int64  // blocks that came from the depot, less those that went there
}

// blocks returns how many are here.
func (f *bin) blocks() uint32 { return f.n + f.spareN }

// allocs returns how many blocks users took, ever: what came and is not here.
func (f *bin) allocs() uint64 { return uint64(f.stocked) + f.frees - uint64(f.blocks()) }

// shard is the front of a pool for one processor. What the fast path touches is
// kept small: other numbers follow from these.
type shard struct {
	busy uint32 // 1 while the processor works on it
	stop uint32 // 1 while somebody else does, or wants to
	turn uint32 // for the race detector: its users come one after the other
	mu   sync.Mutex

	delta   int64        // allocated less freed and not published: bytes<<20 + blocks
	low     int64        // delta below it: something is due
	asked   uint64       // bytes requested, ever
	unasked uint64       // and given back
	stocked int64        // bytes that came from the depot, less those that went there
	sent    int64        // bytes of delta published so far
	told    int64        // asked less unasked, as published
	limit   int64        // bytes that the bins may hold: what it took from the budget
	pressed bool         // the bins hold nothing, because somebody waits for memory
	hand    uint16       // the class that eviction looks at next
	rooms   []tenantRoom // by the number of the tenant
	bins    [numClasses]bin
	passed  [numClasses]uint32 // uses of each bin when the hand passed
	looked  [numClasses]binLook
	_       [128]byte
}

// cached returns the bytes in the bins: what came less what users have.
func (s *shard) cached() int64 { return s.stocked - s.sent - s.change().bytes }

// enter gives the caller a shard of its own until leave, or nil when somebody
// holds the shards. Between the two calls nothing may block.
func (p *Pool) enter() *shard {
	id := pin.Pin()
	s := p.claim(id)
	if s == nil {
		s = p.claimOther(id)
	}
	if s == nil {
		pin.Unpin()
	}
	return s
}

// claim is the part of enter that is inlined where it counts: it takes the shard of a
// pinned processor, or returns nil. Then the caller tries claimOther, and if that
// gives none either, unpins.
func (p *Pool) claim(id int) *shard {
	if !pin.Fast || id >= len(p.shards) || !pin.Expedited() {
		return nil
	}
	s := &p.shards[id]
	// A plain store: whoever stops the shards makes this processor pass a
	// barrier before looking at busy.
	pin.Store(&s.busy, 1)
	if atomic.LoadUint32(&s.stop) != 0 {
		pin.Store(&s.busy, 0)
		return nil
	}
	pin.Acquire(&s.turn)
	return s
}

// claimOther is claim for what is rare: where Pin is only a hint, on a processor that
// was not there when the pool was made, and where the system has no barrier for others
// to use.
func (p *Pool) claimOther(id int) *shard {
	if !pin.Fast {
		return p.claimLocked(id)
	}
	if id >= len(p.shards) {
		return p.claimAdded(id)
	}
	if pin.Expedited() {
		return nil
	}
	return p.shards[id].claimFenced()
}

// claimFenced is claim with a fence of its own.
func (s *shard) claimFenced() *shard {
	pin.Acquire(&s.turn) // first: the race detector takes the store for all there is to know
	atomic.StoreUint32(&s.busy, 1)
	if atomic.LoadUint32(&s.stop) != 0 {
		pin.Store(&s.busy, 0)
		return nil
	}
	return s
}

// claimLocked is claim where Pin is only a hint.
func (p *Pool) claimLocked(id int) *shard {
	s := &p.shards[id%len(p.shards)]
	s.mu.Lock()
	if s.stop != 0 {
		s.mu.Unlock()
		return nil
	}
	return s
}

// leave ends enter.
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

// stopShards keeps every processor off its shard until resumeShards. p.mu is
// held.
func (p *Pool) stopShards() {
	for s := range p.allShards() {
		if !pin.Fast {
			s.mu.Lock()
			s.stop = 1
			s.mu.Unlock()
			continue
		}
		atomic.StoreUint32(&s.stop, 1)
	}
	if !pin.Fast {
		return
	}
	pin.Barrier()
	for s := range p.allShards() {
		for atomic.LoadUint32(&s.busy) != 0 {
			runtime.Gosched()
		}
	}
}

// resumeShards ends stopShards; a closed pool's shards stay stopped.
func (p *Pool) resumeShards() {
	if p.closed {
		return
	}
	for s := range p.allShards() {
		if !pin.Fast {
			s.mu.Lock()
			s.stop = 0
			s.mu.Unlock()
			continue
		}
		atomic.StoreUint32(&s.stop, 0)
	}
}

// take pops a block of a class; nil when the bin is empty.
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

// put pushes a block.
func (s *shard) put(k int, c *owner.Cell) {
	setState(c, stateCached)
	f := &s.bins[k]
	c.Next = f.head
	f.head = owner.LinkTo(c)
	f.n++
}

// reload makes the spare magazine the one in use when that is empty.
func (s *shard) reload(k int) bool {
	f := &s.bins[k]
	if f.n != 0 || f.spareN == 0 {
		return f.n != 0
	}
	f.magazine = magazine{f.spare, f.spareN}
	f.spare, f.spareN = 0, 0
	return true
}

// stock puts a magazine into use, and what was taken from the budget for it into
// the limit. What was in use is returned, in the rare case that somebody stocked
// meanwhile and both places are full; all of it, while the bins must hold nothing.
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
	s.watch()
	return back
}

// unstock takes a magazine off for the depot, with its bytes of the limit: the
// spare one, for which the one in use takes its place.
func (s *shard) unstock(k int) magazine {
	f := &s.bins[k]
	m := magazine{f.spare, f.spareN}
	f.spare, f.spareN = f.head, f.n
	f.magazine = magazine{}
	s.moved(k, -int64(m.n))
	s.limit -= classBytes[k] * int64(m.n)
	s.watch()
	return m
}

// moved notes that so many blocks came from behind the front.
func (s *shard) moved(k int, blocks int64) {
	s.bins[k].stocked += blocks
	s.stocked += classBytes[k] * blocks
}

// peakStep is how many bytes a processor may be ahead of what is published: the
// peak of allocated bytes is exact to this much a processor.
const (
	peakStep   = 4 << 20
	deltaShift = 20
)

// change is what a shard has to publish.
type change struct {
	bytes, blocks, asked int64
}

// watch sets the mark below which delta means that something is due: a change
// to publish, or more bytes in the bins than the limit, which is below 0 for a
// shard that must keep nothing.
func (s *shard) watch() {
	limit := s.limit
	if s.pressed {
		limit = -1
	}
	room := max(s.stocked-s.sent-limit, -peakStep)
	s.low = min(room, peakStep) << deltaShift
}

// overtaken tells, after a put, whether something is due.
func (s *shard) overtaken(k int) bool {
	return s.delta < s.low || s.bins[k].n >= magazineSize[k]
}

// isDue tells whether a change is large enough to publish: in bytes, or in
// blocks, of which delta holds fewer than 2^19 either way.
func (s *shard) isDue() bool {
	const limit, most = peakStep << deltaShift, 1 << (deltaShift - 2)
	return uint64(s.delta+limit) > 2*limit || uint64(s.change().blocks+most) > 2*most
}

// change is what is not published.
func (s *shard) change() change {
	// The low bits are the blocks, as a signed number.
	blocks := s.delta << (64 - deltaShift) >> (64 - deltaShift)
	return change{bytes: (s.delta - blocks) >> deltaShift, blocks: blocks}
}

// takeChange returns what is not published, for publishing.
func (s *shard) takeChange() change {
	c := s.change()
	asked := int64(s.asked - s.unasked)
	c.asked = asked - s.told
	s.told, s.delta = asked, 0
	s.sent += c.bytes
	s.watch()
	return c
}
