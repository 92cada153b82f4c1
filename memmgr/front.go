package memmgr

import (
	"iter"
	"runtime"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// front is the part of a pool that caches free blocks by size class: one shard for
// each processor, with one bin for each class. It is the only part on the fast path.
// Processors that the process gets after the pool was made, beyond those of the machine at
// that time, have no shard: they use the depot and the heap.
//
// Lock: a shard belongs to the goroutine that entered it, until it leaves. stopShards
// gives all of them to the goroutine that holds Pool.mu, until resumeShards. Pool.mu
// guards pressed and closed. The budget is atomic.
type front struct {
	shards  []shard
	budget  cacheBudget // of the shards and the depot
	pressed bool        // a request waits for memory: nothing is cached
	closed  bool        // the shards stay stopped
}

func (f *front) init() {
	pin.Register()
	f.shards = make([]shard, max(runtime.GOMAXPROCS(0), runtime.NumCPU()))
	for s := range f.allShards() {
		s.setLow()
	}
}

// allShards iterates over the shards.
func (f *front) allShards() iter.Seq[*shard] {
	return func(yield func(*shard) bool) {
		for i := range f.shards {
			if !yield(&f.shards[i]) {
				return
			}
		}
	}
}

// enter gives the caller the shard of its processor until leave, or nil while the
// shards are stopped. Nothing may block between the two calls.
func (f *front) enter() *shard {
	id := pin.Pin()
	if s := f.claim(id); s != nil {
		return s
	}
	return f.claimOther(id)
}

// claim is the part of enter that is inlined into the fast path: it takes the shard
// of a pinned processor, or returns nil. Then the caller tries claimOther.
func (f *front) claim(id int) *shard {
	if !pin.Fast || id >= len(f.shards) || !pin.Expedited() {
		return nil
	}
	s := &f.shards[id]
	// A plain store: stopShards makes this processor pass a barrier before it reads
	// busy.
	pin.Store(&s.busy, 1)
	if atomic.LoadUint32(&s.stop) != 0 {
		pin.Store(&s.busy, 0)
		return nil
	}
	pin.Acquire(&s.turn)
	return s
}

// claimOther is claim for the rare cases: Pin is only a hint, or the system has no barrier
// for other processors. If it returns nil, the caller is not pinned any more.
func (f *front) claimOther(id int) (s *shard) {
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

// stopShards keeps every processor off its shard until resumeShards. Pool.mu is held.
func (f *front) stopShards() {
	f.setStop(1)
	if !pin.Fast {
		return
	}
	pin.Barrier()
	for s := range f.allShards() {
		for atomic.LoadUint32(&s.busy) != 0 {
			runtime.Gosched()
		}
	}
}

// resumeShards ends stopShards, unless the pool is closed.
func (f *front) resumeShards() {
	if !f.closed {
		f.setStop(0)
	}
}

func (f *front) setStop(stop uint32) {
	for s := range f.allShards() {
		if !pin.Fast {
			s.mu.Lock()
			s.stop = stop
			s.mu.Unlock()
			continue
		}
		atomic.StoreUint32(&s.stop, stop)
	}
}

// cached estimates the bytes in the bins. It does not stop the shards.
func (f *front) cached() (n int64) {
	for s := range f.allShards() {
		cached, _, _ := s.glance()
		n += cached
	}
	return n
}

// unpublished estimates the bytes and blocks that users hold and that no shard has
// published yet. It does not stop the shards.
func (f *front) unpublished() (bytes, blocks int64) {
	for s := range f.allShards() {
		_, b, n := s.glance()
		bytes, blocks = bytes+b, blocks+n
	}
	return bytes, blocks
}

// drain takes all blocks out of the bins. Pool.mu is held.
func (f *front) drain() (out magazineStack) {
	f.stopShards()
	defer f.resumeShards()
	for s := range f.allShards() {
		f.empty(s, &out)
	}
	return out
}

// press begins or ends the time in which nothing is cached. It takes all blocks out of
// the bins. Pool.mu is held.
func (f *front) press(on bool) (out magazineStack) {
	f.stopShards()
	defer f.resumeShards()
	f.pressed = on
	for s := range f.allShards() {
		f.empty(s, &out)
		s.pressed = on
		s.setLow()
	}
	return out
}

// empty takes all blocks out of a stopped shard and sets its limit to 0.
func (f *front) empty(s *shard, out *magazineStack) {
	for k := range s.bins {
		for s.evictOne(k, out) != 0 {
		}
	}
	f.budget.give(s.limit)
	s.limit = 0
	s.setLow()
}

// take takes a block from the caller's shard for a request that the fast path did not try. It
// returns nil if the bin is empty.
func (f *front) take(k int, requested uintptr) *owner.Cell {
	s := f.enter()
	if s == nil {
		return nil
	}
	defer s.leave()
	c := s.take(k)
	if c == nil {
		c = s.takeSpare(k)
	}
	if c != nil {
		s.countTake(k, uint64(requested))
	}
	return c
}

// stock puts a magazine, with its bytes of the budget, into the bin of the caller's
// shard. It returns the magazine that finds no place.
func (f *front) stock(m magazine, k int) (back magazine) {
	s := f.enter()
	if s == nil {
		return m
	}
	back = s.stock(k, m)
	f.lower(s, peakStep)
	s.leave()
	return back
}

// takeLarge takes the blocks of the classes above coarseUnits out of the caller's shard
// if it caches more than its part of so many bytes.
func (f *front) takeLarge(most int64) (out magazineStack) {
	s := f.enter()
	if s == nil {
		return out
	}
	if s.cached() > most/int64(len(f.shards)) {
		for k := coarseClasses; k < numClasses; k++ {
			for s.evictOne(k, &out) != 0 {
			}
		}
		s.setLow()
	}
	s.leave()
	return out
}

// lower gives the unused bytes of a shard's limit back, except for so many: a shard that takes more than it
// gives back would hoard them. The shard is stopped, or the caller's.
func (f *front) lower(s *shard, keep int64) {
	if unused := s.limit - s.cached() - keep; unused > 0 {
		s.limit -= unused
		f.budget.give(unused)
	}
	s.setLow()
}

// fit keeps a shard within its limit after a put into the bin of class k: it raises the limit while the
// budget allows it, and otherwise takes blocks out for the heap. The shard is the caller's.
func (f *front) fit(s *shard, k int) (surplus magazineStack) {
	if over := s.cached() - s.limit; over > 0 {
		var more int64
		if !s.pressed {
			// The share of the rest is small, so that each processor gets one.
			more = f.budget.take(over, min(f.budget.free.Load()/8, peakStep))
		}
		if s.limit += more; more == 0 {
			// More than needed, because it takes time to look for classes to evict.
			s.evict(k, over+s.limit/16, &surplus)
		}
	}
	f.lower(s, peakStep)
	return surplus
}

// age removes the blocks that were not needed during the last calls: all blocks of a bin that was not used,
// and otherwise its spare magazine if that did not change. Their bytes still count in the budget. Unused bytes
// of the limits return to it. Pool.mu is held.
func (f *front) age() (cold magazineStack) {
	f.stopShards()
	defer f.resumeShards()
	for s := range f.allShards() {
		if s.cached() > 0 {
			s.age(&cold)
		}
		f.lower(s, 0)
	}
	return cold
}
