package memmgr

import "github.com/usmbridge/usmbridge/internal/owner"

// What the pool keeps goes back by age, whatever else is at work: blocks of a class
// that nobody used for the time of [WithDecay] become free memory of their segments,
// and segments that were out of use as long go back to the upstream. Both in
// portions, between which others get the lock.

// looks is how often in that time the processors' bins are looked at.
const looks = 4

// binLook is what the last look at a bin found.
type binLook struct {
	spare     owner.Link
	uses      uint32
	idle      uint8 // looks since the bin was used
	spareIdle uint8 // looks since the spare magazine was
}

// decayCaches finds the blocks that were not needed for so many ticks, and has
// [Pool.dissolveCold] dissolve them. p.mu is held.
func (p *Pool) decayCaches(age uint32) {
	if p.ticks%age == 0 {
		p.decayDepot()
	}
	if p.ticks%max(1, age/looks) == 0 && p.cachedBytes() > p.counters.depotBytes {
		p.decayFront()
	}
}

// decayDepot takes out of the depot what was there during the whole time since the
// last call: of each class as many blocks as it never fell below. p.mu is held.
func (p *Pool) decayDepot() {
	for k := range p.depot {
		d := &p.depot[k]
		for d.low != 0 {
			_, n := magazineParts(d.top.Cell())
			if n > d.low {
				break
			}
			low := d.low - n
			p.chill(p.popMagazine(k), k)
			d.low = low
		}
		d.low = d.blocks
	}
}

// decayFront does so with the bins: one whose counts have not moved for all looks is
// emptied, of the others the spare magazine that stayed as long. Unused limits go
// back when the budget runs low. p.mu is held.
func (p *Pool) decayFront() {
	short := p.budget.left.Load() < p.budget.bound.Load()/8
	p.stopShards()
	defer p.resumeShards()
	for s := range p.allShards() {
		if s.cached() > 0 {
			p.decayShard(s)
		}
		if short {
			p.lower(s, s.slack()-s.slack()/2)
		}
		s.watch()
	}
}

func (p *Pool) decayShard(s *shard) {
	for k := range s.bins {
		f, l := &s.bins[k], &s.looked[k]
		if uses := uint32(f.frees + f.allocs()); uses != l.uses {
			l.uses, l.idle = uses, 0
		} else if l.idle++; l.idle >= looks && f.blocks() != 0 {
			p.chillTop(s, k)
		}
		if f.spare == 0 {
			// The next look but looks tells whether the blocks here were needed.
			f.spare, f.spareN, f.magazine = f.head, f.n, magazine{}
			l.spareIdle = 0
		}
		if f.spare != l.spare {
			l.spare, l.spareIdle = f.spare, 0
		} else if l.spareIdle++; f.spare != 0 && l.spareIdle >= looks {
			p.chillTop(s, k)
		}
		l.idle = min(l.idle, looks)
	}
}

// chillTop takes magazines of a bin out: the spare one, and when the whole bin is
// idle both. The shard is stopped.
func (p *Pool) chillTop(s *shard, k int) {
	for {
		m := s.remove(k)
		if m.n == 0 {
			return
		}
		s.limit -= m.bytes(k)
		p.chill(m, k)
		if s.looked[k].idle < looks {
			return
		}
	}
}

// chill puts a magazine where it waits to be dissolved, with its bytes of the budget.
// p.mu is held.
func (p *Pool) chill(m magazine, k int) {
	p.cold.push(m)
	p.counters.depotBytes += m.bytes(k)
}

// coldPortion is how many blocks are dissolved, or segments given back, under one
// hold of the lock.
const (
	coldPortion    = 512
	segmentPortion = 32
)

// dissolveCold dissolves about so many blocks of what has grown cold, and reports
// whether some are left. p.mu is held.
func (p *Pool) dissolveCold(blocks int) (more bool) {
	for blocks > 0 && p.cold.top != 0 {
		m := p.cold.pop()
		size := m.bytes(int(m.head.Cell().Private))
		blocks -= int(m.n)
		p.dissolveAll(m)
		p.counters.depotBytes -= size
		p.budget.give(size)
	}
	return p.cold.top != 0
}

// decaySegments gives back what has been out of use for so many ticks, up to a
// portion, and reports whether there may be more. p.mu is held.
func (p *Pool) decaySegments(age uint32) (more bool) {
	left := segmentPortion
	for at := p.idle.oldest; at != 0 && p.age(p.idle.nodes[at].tick) >= age; at = p.idle.oldest {
		if left--; left < 0 {
			return true
		}
		p.dropIdle(at)
	}
	for _, n := range p.emptySegments() {
		if p.age(p.segs[n].emptyTick) < age {
			break
		}
		if left--; left < 0 {
			return true
		}
		p.dropSegment(n)
	}
	return false
}
