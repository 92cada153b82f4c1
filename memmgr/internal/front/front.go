package front

import (
	"iter"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// Front is the part of a pool that caches free blocks by size class: one shard for
// each processor, with one bin for each class. It is the only part on the fast path.
// Processors that the process gets after the pool was made, beyond those of the machine at
// that time, have no shard: they use the depot and the heap.
//
// Lock: a shard belongs to the goroutine that entered it, until it leaves. Stop gives all of them to the
// goroutine that holds the lock of the pool, until Resume. That lock guards pressed and closed. The
// budget is atomic.
type Front struct {
	shards  []Shard
	Budget  Budget // of the shards and the depot
	pressed bool   // a request waits for memory: nothing is cached
	closed  bool   // the shards stay stopped
}

// Init makes the shards. cache is the bound on cached bytes, or [DefaultCache].
func (f *Front) Init(cache int64) {
	pin.Register()
	f.shards = make([]Shard, max(runtime.GOMAXPROCS(0), runtime.NumCPU()))
	f.Budget.init(cache)
	for s := range f.Shards() {
		s.setLow()
	}
}

// Shards iterates over the shards.
func (f *Front) Shards() iter.Seq[*Shard] {
	return func(yield func(*Shard) bool) {
		for i := range f.shards {
			if !yield(&f.shards[i]) {
				return
			}
		}
	}
}

// Len returns the number of shards.
func (f *Front) Len() int { return len(f.shards) }

// Bytes returns the size of the shards.
func (f *Front) Bytes() uintptr { return uintptr(len(f.shards)) * unsafe.Sizeof(Shard{}) }

// Pressed reports whether nothing is cached. The lock of the pool is held.
func (f *Front) Pressed() bool { return f.pressed }

// Close has the shards stay stopped after the next Stop. The lock of the pool is held.
func (f *Front) Close() { f.closed = true }

// Enter gives the caller the shard of its processor until [Shard.Leave], or nil while the
// shards are stopped. Nothing may block between the two calls.
func (f *Front) Enter() *Shard {
	id := pin.Pin()
	if s := f.Claim(id); s != nil {
		return s
	}
	return f.ClaimOther(id)
}

// Claim is the part of Enter that is inlined into the fast path: it takes the shard
// of a pinned processor, or returns nil. Then the caller tries ClaimOther.
func (f *Front) Claim(id int) *Shard {
	if !pin.Fast || id >= len(f.shards) || !pin.Expedited() {
		return nil
	}
	s := &f.shards[id]
	// A plain store: Stop makes this processor pass a barrier before it reads busy.
	pin.Store(&s.busy, 1)
	if atomic.LoadUint32(&s.stop) != 0 {
		pin.Store(&s.busy, 0)
		return nil
	}
	pin.Acquire(&s.turn)
	return s
}

// ClaimOther is Claim for the rare cases: Pin is only a hint, or the system has no barrier
// for other processors. If it returns nil, the caller is not pinned any more.
func (f *Front) ClaimOther(id int) (s *Shard) {
	switch {
	case !pin.Fast:
		s = f.shards[id%len(f.shards)].claimLocked()
	case id < len(f.shards) && !pin.Expedited():
		s = f.shards[id].claimFenced()
	}
	if s == nil {
		pin.Unpin()
	}
	return s
}

// Stop keeps every processor off its shard until Resume. The lock of the pool is held.
func (f *Front) Stop() {
	f.setStop(1)
	if !pin.Fast {
		return
	}
	pin.Barrier()
	for s := range f.Shards() {
		for atomic.LoadUint32(&s.busy) != 0 {
			runtime.Gosched()
		}
	}
}

// Resume ends Stop, unless the front is closed.
func (f *Front) Resume() {
	if !f.closed {
		f.setStop(0)
	}
}

func (f *Front) setStop(stop uint32) {
	for s := range f.Shards() {
		if !pin.Fast {
			s.mu.Lock()
			s.stop = stop
			s.mu.Unlock()
			continue
		}
		atomic.StoreUint32(&s.stop, stop)
	}
}

// Cached estimates the bytes in the bins. It does not stop the shards.
func (f *Front) Cached() (n int64) {
	for s := range f.Shards() {
		cached, _ := s.glance()
		n += cached
	}
	return n
}

// Unpublished estimates the bytes and blocks that users hold and that no shard has
// published yet. It does not stop the shards.
func (f *Front) Unpublished() (bytes, blocks int64) {
	for s := range f.Shards() {
		_, c := s.glance()
		bytes, blocks = bytes+c.Bytes, blocks+c.Blocks
	}
	return bytes, blocks
}

// Drain takes all blocks out of the bins. The lock of the pool is held.
func (f *Front) Drain() (out block.Stack) { return f.Press(f.pressed) }

// Press begins or ends the time in which nothing is cached. It takes all blocks out of
// the bins. The lock of the pool is held.
func (f *Front) Press(on bool) (out block.Stack) {
	f.Stop()
	defer f.Resume()
	f.pressed = on
	for s := range f.Shards() {
		s.evictFrom(0, &out)
		f.Budget.Give(s.limit)
		s.limit, s.pressed = 0, on
		s.setLow()
	}
	return out
}

// Take takes a block from the caller's processor for a request that the fast path did not try. It returns nil
// if the bin is empty.
func (f *Front) Take(k int, requested uintptr) *owner.Cell {
	s := f.Enter()
	if s == nil {
		return nil
	}
	defer s.Leave()
	c := s.Take(k)
	if c == nil {
		c = s.TakeSpare(k)
	}
	if c != nil {
		s.CountTake(k, uint64(requested))
	}
	return c
}

// AfterPut does the parts of a put that are rarely needed, see [Shard.NeedsWork]: it returns the counts to
// publish, a full magazine for the depot, whose bytes of the budget go with it, and blocks above the
// shard's bound, for the heap. It leaves the shard.
func (f *Front) AfterPut(s *Shard, k int) (c Change, full block.Magazine, surplus block.Stack) {
	c = s.takeLargeChange()
	surplus = f.fit(s, k)
	if s.bins[k].N >= block.MagazineSize[k] {
		full = s.unstock(k)
	}
	s.Leave()
	return c, full, surplus
}

// TakeChange returns the counts of the caller's processor if there is enough to publish.
func (f *Front) TakeChange() (c Change) {
	s := f.Enter()
	if s == nil {
		return c // the goroutine that stopped the shards publishes, or a later call
	}
	c = s.takeLargeChange()
	s.Leave()
	return c
}

// Stock puts a magazine, with its bytes of the budget, into the bin of the caller's
// processor. It returns the magazine that finds no place.
func (f *Front) Stock(m block.Magazine, k int) (back block.Magazine) {
	s := f.Enter()
	if s == nil {
		return m
	}
	back = s.stock(k, m)
	f.lower(s, publishStep)
	s.Leave()
	return back
}

// TakeLarge takes the blocks of the classes above [block.CoarseUnits] out of the shard of the caller's
// processor if it caches more than its part of so many bytes.
func (f *Front) TakeLarge(most int64) (out block.Stack) {
	s := f.Enter()
	if s == nil {
		return out
	}
	if s.Cached() > most/int64(len(f.shards)) {
		s.evictFrom(block.CoarseClasses, &out)
		s.setLow()
	}
	s.Leave()
	return out
}

// lower gives the unused bytes of a shard's limit back, except for so many: a shard that takes more than it
// gives back would hoard them. The shard is stopped, or the caller's.
func (f *Front) lower(s *Shard, keep int64) {
	if unused := s.limit - s.Cached() - keep; unused > 0 {
		s.limit -= unused
		f.Budget.Give(unused)
	}
	s.setLow()
}

// fit keeps a shard within its limit after a put into the bin of class k: it raises the limit while the
// budget allows it, and otherwise takes blocks out for the heap. The shard is the caller's.
func (f *Front) fit(s *Shard, k int) (surplus block.Stack) {
	if over := s.Cached() - s.limit; over > 0 {
		var more int64
		if !s.pressed {
			// The share of the rest is small, so that each processor gets one.
			more = f.Budget.Take(over, min(f.Budget.Left()/8, publishStep))
		}
		if s.limit += more; more == 0 {
			// More than needed, because it takes time to look for classes to evict.
			s.evict(k, over+s.limit/16, &surplus)
		}
	}
	f.lower(s, publishStep)
	return surplus
}

// Look describes a call of [Front.Age].
type Look struct {
	Tick  uint32 // of the pool's clock
	Span  uint32 // the least number of ticks between two calls
	Least uint8  // blocks that were not needed between so many calls are idle
}

// Age removes the blocks that were not needed during the last calls: all blocks of a bin that was not used,
// and otherwise its spare magazine if that did not change. Their bytes still count in the budget. Unused bytes
// of the limits return to it. The lock of the pool is held.
func (f *Front) Age(l Look) (cold block.Stack) {
	f.Stop()
	defer f.Resume()
	for s := range f.Shards() {
		if s.Cached() > 0 {
			s.age(l, &cold)
		}
		f.lower(s, 0)
	}
	return cold
}
