package memmgr

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
	"github.com/usmbridge/usmbridge/memmgr/owner"
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
	mu   sync.Mutex

	delta   int64  // allocated less freed and not published: bytes<<20 + blocks
	low     int64  // delta below it: something is due
	asked   uint64 // bytes requested, ever
	unasked uint64 // and given back
	stocked int64  // bytes that came from the depot, less those that went there
	sent    int64  // bytes of delta published so far
	told    int64  // asked less unasked, as published
	bins    [numClasses]bin
	_       [128]byte
}

// cached returns the bytes in the bins: what came less what users have.
func (s *shard) cached() int64 { return s.stocked - s.sent - s.change().bytes }

// enter gives the caller a shard of its own until leave, or nil when somebody
// holds the shards. Between the two calls nothing may block.
func (p *Pool) enter() *shard {
	s := p.claim(pin.Pin())
	if s == nil {
		pin.Unpin()
	}
	return s
}

// claim is the half of enter that is inlined where it counts: it takes the shard
// of a pinned processor, or returns nil, and then the caller unpins.
func (p *Pool) claim(id int) *shard {
	if !pin.Fast {
		return p.claimLocked(id)
	}
	if id >= len(p.shards) {
		return nil // GOMAXPROCS grew since the pool was made
	}
	s := &p.shards[id]
	if !pin.Expedited {
		return s.claimFenced()
	}
	// A plain store: whoever stops the shards makes this processor pass a
	// barrier before looking at busy.
	s.busy = 1
	if atomic.LoadUint32(&s.stop) != 0 {
		s.busy = 0
		return nil
	}
	return s
}

// claimFenced is claim where the system has no barrier for others to use.
func (s *shard) claimFenced() *shard {
	atomic.StoreUint32(&s.busy, 1)
	if atomic.LoadUint32(&s.stop) != 0 {
		atomic.StoreUint32(&s.busy, 0)
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
	// On amd64 a plain store is a release.
	s.busy = 0
	pin.Unpin()
}

// stopShards keeps every processor off its shard until resumeShards. p.mu is
// held.
func (p *Pool) stopShards() {
	for i := range p.shards {
		s := &p.shards[i]
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
	for i := range p.shards {
		for atomic.LoadUint32(&p.shards[i].busy) != 0 {
			runtime.Gosched()
		}
	}
}

// resumeShards ends stopShards; a closed pool's shards stay stopped.
func (p *Pool) resumeShards() {
	if p.closed {
		return
	}
	for i := range p.shards {
		s := &p.shards[i]
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

// stock puts a magazine from the depot into use. What was in use is returned,
// in the rare case that somebody stocked meanwhile and both places are full.
func (s *shard) stock(k int, m magazine, limit int64) (back magazine) {
	f := &s.bins[k]
	back = magazine{f.spare, f.spareN}
	f.spare, f.spareN = f.head, f.n
	f.magazine = m
	f.stocked += int64(m.n) - int64(back.n)
	s.stocked += classBytes[k] * (int64(m.n) - int64(back.n))
	s.watch(limit)
	return back
}

// unstock takes a magazine off for the depot: the spare one, for which the one
// in use takes its place.
func (s *shard) unstock(k int, limit int64) magazine {
	f := &s.bins[k]
	m := magazine{f.spare, f.spareN}
	f.spare, f.spareN = f.head, f.n
	f.magazine = magazine{}
	f.stocked -= int64(m.n)
	s.stocked -= classBytes[k] * int64(m.n)
	s.watch(limit)
	return m
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
// to publish, or more than limit bytes in the bins.
func (s *shard) watch(limit int64) {
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
func (s *shard) takeChange(limit int64) change {
	c := s.change()
	asked := int64(s.asked - s.unasked)
	c.asked = asked - s.told
	s.told, s.delta = asked, 0
	s.sent += c.bytes
	s.watch(limit)
	return c
}

// newShards makes one for each processor that can run Go code.
func newShards(limit int64) []shard {
	pin.Register()
	shards := make([]shard, max(runtime.GOMAXPROCS(0), runtime.NumCPU()))
	for i := range shards {
		shards[i].watch(limit)
	}
	return shards
}

// frontBytes is the Go memory of the shards.
func (p *Pool) frontBytes() uint64 { return uint64(len(p.shards)) * uint64(unsafe.Sizeof(shard{})) }
