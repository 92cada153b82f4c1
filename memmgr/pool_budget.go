package memmgr

import "sync/atomic"

// budget bounds the free blocks that a pool keeps by class: in the bins of all
// processors, in the depot, and in hand between the two. Whoever keeps a block has
// taken its bytes from here, and they go along when blocks move, so the bound holds
// at all times, to the one block that a free puts into a bin before it looks.
type budget struct {
	left  atomic.Int64 // bytes that nobody has taken; less than 0 after the bound fell
	bound atomic.Int64
}

// take grants least bytes and up to more on top, or nothing.
func (b *budget) take(least, more int64) int64 {
	for {
		left := b.left.Load()
		if left < least || least <= 0 {
			return 0
		}
		grant := min(left, least+max(more, 0))
		if b.left.CompareAndSwap(left, left-grant) {
			return grant
		}
	}
}

// give returns what was taken.
func (b *budget) give(bytes int64) {
	if bytes != 0 {
		b.left.Add(bytes)
	}
}

const (
	// defaultCache stands for the bound that follows the state of the pool.
	defaultCache = -1
	// It leaves a sixth of what is reserved to requests of any class, because
	// blocks that are kept do not merge: what is out of use beyond that may be kept.
	sharedPart = 6
	// Where less is out of use, so much may be kept, or this part of what is reserved.
	leastCache     = 32 << 20
	leastCachePart = 64
)

// boundWanted is the bound on free blocks by the options and, without one, by the
// state of the pool.
func (p *Pool) boundWanted() int64 {
	if p.options.cache != defaultCache {
		return p.options.cache
	}
	all := p.ordinary.Load()
	free := all - p.published.bytes.now.Load()
	return max(leastCache, all/leastCachePart, free-all/sharedPart)
}

// noteOrdinary tells what the bound follows, when the pool grew or shrank and with
// each tick. p.mu is held.
func (p *Pool) noteOrdinary() {
	p.ordinary.Store(int64(p.counters.reserved - p.counters.idleBytes))
}

// raiseBound lets more be kept where the pool's state allows it.
func (p *Pool) raiseBound() {
	for wanted := p.boundWanted(); ; {
		bound := p.budget.bound.Load()
		if wanted <= bound {
			return
		}
		if p.budget.bound.CompareAndSwap(bound, wanted) {
			p.budget.give(wanted - bound)
			return
		}
	}
}

// setBound makes the bound what it should be; where it falls below what is kept,
// blocks are taken off until it holds. p.mu is held.
func (p *Pool) setBound() {
	p.noteOrdinary()
	wanted := p.boundWanted()
	p.budget.give(wanted - p.budget.bound.Swap(wanted))
	if p.budget.left.Load() >= 0 {
		return
	}
	p.stopShards()
	defer p.resumeShards()
	for s := range p.allShards() {
		p.lower(s, s.slack())
	}
	for tries := numClasses; tries > 0 && p.budget.left.Load() < 0 && p.counters.depotBytes > 0; tries-- {
		p.yieldDepot()
	}
	others := p.countShards()
	for s := range p.allShards() {
		// Each gives its share of what is still missing.
		missing := -p.budget.left.Load()
		if missing <= 0 {
			return
		}
		surplus := s.evict(numClasses-1, missing/int64(others)+1)
		others--
		p.lower(s, s.slack())
		p.dissolveStack(surplus)
	}
}

// lower takes bytes of a shard's limit back, if it is any. The shard is stopped, or
// the caller's.
func (p *Pool) lower(s *shard, bytes int64) {
	if bytes <= 0 {
		return
	}
	s.limit -= bytes
	p.budget.give(bytes)
	s.watch()
}

// share is how much a processor takes beyond its need: at most a portion of what is
// left, so that there is something for all of them.
func (b *budget) share() int64 { return min(b.left.Load()/8, peakStep) }

// fit keeps a shard within its limit after a block of a class was put: it raises
// the limit while the budget has something left, and then takes blocks off for the
// heap. The shard is the caller's.
func (p *Pool) fit(s *shard, k int) (surplus magazineStack) {
	if s.pressed {
		s.takeOff(k, &surplus)
		s.takeOff(k, &surplus)
		s.watch()
		return surplus
	}
	over := s.cached() - s.limit
	if over <= 0 {
		return surplus
	}
	if !p.raiseLimit(s, over) {
		// More than needed, because looking at classes takes its time.
		surplus = s.evict(k, over+s.limit/16)
	}
	s.watch()
	return surplus
}

// raiseLimit raises a shard's limit by so many bytes and a share, if the budget, or the
// state of the pool, allows it.
func (p *Pool) raiseLimit(s *shard, bytes int64) bool {
	more := p.budget.take(bytes, p.budget.share())
	if more == 0 && p.options.cache == defaultCache {
		p.raiseBound()
		more = p.budget.take(bytes, p.budget.share())
	}
	s.limit += more
	return more != 0
}

// coldTries is how many classes an eviction looks at for blocks that were not used
// since it last came by.
const coldTries = 64

// evict takes at least so many bytes off, in portions of a magazine: of classes that
// were not used since it last came by, of which it looks at a few at a time, then of
// the class that grows, and then of any.
func (s *shard) evict(growing int, bytes int64) (out magazineStack) {
	for range coldTries {
		if bytes <= 0 {
			return out
		}
		k := s.nextClass()
		f := &s.bins[k]
		if f.blocks() == 0 {
			continue
		}
		if used := uint32(f.frees + f.allocs()); used != s.passed[k] {
			s.passed[k] = used
			continue
		}
		bytes -= s.takeOff(k, &out)
	}
	for range 2 { // the spare magazine and the one in use
		if bytes > 0 {
			bytes -= s.takeOff(growing, &out)
		}
	}
	for tries := numClasses; tries > 0 && bytes > 0; tries-- {
		k := s.nextClass()
		for s.bins[k].blocks() != 0 && bytes > 0 {
			bytes -= s.takeOff(k, &out)
		}
	}
	return out
}

// nextClass moves the hand on.
func (s *shard) nextClass() int {
	k := s.hand
	s.hand = (k + 1) % numClasses
	return int(k)
}

// slack is what the limit allows beyond what is there.
func (s *shard) slack() int64 { return max(s.limit-s.cached(), 0) }

// takeOff takes a magazine off for the heap; the limit stays with the shard.
func (s *shard) takeOff(k int, to *magazineStack) (bytes int64) {
	m := s.remove(k)
	if m.n == 0 {
		return 0
	}
	to.push(m)
	return m.bytes(k)
}

// remove takes a magazine out of a bin, the spare one first.
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

// dissolveBins empties a shard into the heap, and ends its limit. p.mu is held and
// the shard is stopped.
func (p *Pool) dissolveBins(s *shard) {
	for k := range s.bins {
		var out magazineStack
		for s.takeOff(k, &out) != 0 {
		}
		p.dissolveStack(out)
	}
	p.budget.give(s.limit)
	s.limit = 0
	s.watch()
}

// press begins or ends the time in which somebody waits for memory: no block is
// kept for its class meanwhile; each one that is freed goes to the heap at once, and
// [Pool.roomMade] is called. p.mu is held.
func (p *Pool) press(on bool) {
	if p.pressed == on {
		return
	}
	p.pressed = on
	p.flush()
	p.stopShards()
	for s := range p.allShards() {
		p.dissolveBins(s) // of a free between the two steps
		s.pressed = on
		s.watch()
	}
	p.resumeShards()
}
