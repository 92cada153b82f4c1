package memmgr

import (
	"math"
	"time"

	"github.com/usmbridge/usmbridge/memmgr/internal/front"
)

// decay is the time of [WithDecay] in ticks, and how the parts of a pool find memory that is idle for so long.
//
// Caches and the free blocks whose pages could go back are looked at every span ticks. A cached block that was
// not used between looks+1 looks is idle for at least the age, and goes to the heap. There it keeps the tick since
// which it is idle, so that its segment or its pages go back to the upstream in the same tick if the rest of them
// is idle for as long.
type decay struct {
	age       uint32 // at most 17 years, because the clock wraps around; 0: nothing decays
	span      uint32
	looks     uint8
	purgeTick uint32 // how many ticks the TLSF heap counts as one: its counter has 16 bits
}

func decayOf(d time.Duration) decay {
	if d <= 0 {
		return decay{span: 1, looks: 1, purgeTick: 1}
	}
	age := uint32(min(max(1, d/tickTime), math.MaxInt32))
	span := max(1, age/front.AgesPerDecay)
	return decay{age: age, span: span, looks: uint8((age + span - 1) / span), purgeTick: age>>15 + 1}
}

// decay returns the memory that is idle for the time of [WithDecay]: cached blocks are freed, and segments
// without blocks in use go back to the upstream. It does so in portions, between which it releases the lock.
// It reports whether the pool is closed and all its memory is back.
func (p *Pool) decay() (ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return !p.leaked
	}
	if p.heap.count.reserved == 0 {
		return false
	}
	of := p.heap.decay
	if of.age == 0 {
		return false
	}
	p.decayCaches(of)
	for p.heap.dissolveCold(coldPortion) {
		p.pending.Breathe(1)
	}
	for !p.closed && p.heap.decaySegments(of.age) {
		p.pending.Breathe(1)
	}
	p.serveWaiters()
	return false
}

// decayCaches makes the idle blocks cold. p.mu is held.
func (p *Pool) decayCaches(of decay) {
	h := &p.heap
	if h.clock%of.span != 0 {
		return
	}
	h.depot.Age(h.clock - uint32(of.looks)*of.span)
	if p.front.Cached() > 0 {
		h.depot.AddCold(p.front.Age(front.Look{Tick: h.clock, Span: of.span, Least: of.looks}))
	}
}
