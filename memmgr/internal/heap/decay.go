package heap

import (
	"math"

	"github.com/usmbridge/usmbridge/memmgr/internal/front"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// Decay is how long memory stays idle, in ticks, and how the parts of a pool find memory that is idle for so long.
//
// Caches and the free blocks whose pages could go back are looked at every span ticks. A cached block that was
// not used between looks+1 looks is idle for at least the age, and goes to the heap. There it keeps the tick since
// which it is idle, so that its segment or its pages go back to the upstream in the same tick if the rest of them
// is idle for as long.
type Decay struct {
	age       uint32 // at most 17 years, because the clock wraps around; 0: nothing decays
	span      uint32
	looks     uint8
	purgeTick uint32 // how many ticks the TLSF heap counts as one: its counter has 16 bits
}

// DecayAfter returns the decay after so many ticks; 0 or less means that nothing decays.
func DecayAfter(ticks int64) Decay {
	if ticks <= 0 {
		return Decay{span: 1, looks: 1, purgeTick: 1}
	}
	age := uint32(min(ticks, math.MaxInt32))
	span := max(1, age/front.AgesPerDecay)
	return Decay{age: age, span: span, looks: uint8((age + span - 1) / span), purgeTick: age>>15 + 1}
}

// Tick advances the clock and reports whether caches and free blocks are due for a look.
func (h *Heap) Tick() (due bool) {
	h.setClock(h.clock + 1)
	return h.Decays() && h.clock%h.options.Decay.span == 0
}

// Decays reports whether idle memory goes back by age.
func (h *Heap) Decays() bool { return h.options.Decay.age > 0 }

// setClock sets the clock and what follows from it.
func (h *Heap) setClock(tick uint32) {
	span := h.options.Decay.span
	h.clock = tick
	h.Depot.Tick = tick + span - tick%span
	h.setIdle(0)
}

// setIdle sets since when the blocks are idle that are freed from now on; 0 means the present.
func (h *Heap) setIdle(since uint32) {
	if since == 0 || int32(since-h.clock) > 0 {
		since = h.clock
	}
	h.idleSince, h.blocks.Tick = since, since/h.options.Decay.purgeTick
}

// AgeCaches takes the idle blocks out of the front and of the classes of the depot. [Heap.DecayCold] frees them.
func (h *Heap) AgeCaches(f *front.Front) {
	d := &h.options.Decay
	h.Depot.Age(h.clock - uint32(d.looks)*d.span)
	if f.Cached() > 0 {
		h.Depot.AddCold(f.Age(front.Look{Tick: h.clock, Span: d.span, Least: d.looks}))
	}
}

// DecayCold frees a portion of the blocks of AgeCaches, and reports whether there are more.
func (h *Heap) DecayCold() (more bool) { return h.dissolveCold(coldPortion) }

// dissolveCold frees about so many blocks of the cold magazines, and reports whether some are left.
func (h *Heap) dissolveCold(blocks int) (more bool) {
	for blocks > 0 && h.Depot.HasCold() {
		m := h.Depot.PopCold()
		blocks -= int(m.N)
		h.Dissolve(m)
	}
	return h.Depot.HasCold()
}

// DecaySegments gives back a portion of the segments whose blocks have all been idle for the age, and reports whether
// there are more.
func (h *Heap) DecaySegments() (more bool) {
	for n := 0; h.oldest != 0 && h.clock-h.segments[h.oldest-1].idleSince >= h.options.Decay.age; n++ {
		if n == segmentPortion {
			return true
		}
		h.drop(h.oldest - 1)
	}
	return false
}

// Dirty is a free block that is out of the heap while its pages go back.
type Dirty struct {
	block         int32
	Address, Size uintptr
}

// Cursor is a position in the order of the free blocks. It stays valid while they change. The zero Cursor is the
// beginning.
type Cursor = tlsf.Cursor

// TakeDirty takes a portion of the free blocks out that may have whole pages of memory, from the cursor on, and
// appends them to taken. If idle, it takes only those that are idle for the age of decay. It reports whether there
// are no more.
func (h *Heap) TakeDirty(cursor *Cursor, idle bool, taken []Dirty) (all []Dirty, ended bool) {
	if h.shut || h.blocks.Counts().DirtyUnits == 0 {
		return taken, true
	}
	age := uint32(0)
	if idle {
		age = h.options.Decay.age / h.options.Decay.purgeTick
	}
	bytes := uintptr(0)
	for looks := 0; looks < dirtyLooks && bytes < dirtyBytes; looks++ {
		n, end := h.blocks.NextDirty(cursor, age)
		if end {
			return taken, true
		}
		if n < 0 {
			continue
		}
		d := Dirty{block: n, Address: h.blocks.Address(n), Size: h.blocks.Size(n)}
		h.blocks.Take(n)
		h.blocks.SetUser(n, 0)
		taken = append(taken, d)
		bytes += d.Size
	}
	return taken, false
}

// GiveBack puts the blocks of TakeDirty back, and records whether their pages are gone. Blocks of the last segments
// of a shut heap end here.
func (h *Heap) GiveBack(taken []Dirty, purged bool) {
	for _, d := range taken {
		seg := h.blocks.Segment(d.block)
		h.freed(seg, h.blocks.GiveBack(d.block, purged))
	}
}
