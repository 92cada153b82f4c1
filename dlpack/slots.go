package dlpack

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Slots are C memory, allocated in slabs and never freed, so that a stale Tensor can
// read its slot at any time and find another generation. Free slots are on a
// lock-free stack whose head carries a tag against reuse between read and swap.
const (
	slabSlots = 512
	maxSlabs  = 8192 // 4 million tensors at once
)

var (
	slabs     [maxSlabs]atomic.Pointer[slab]
	slabCount int // under slabMu
	slabMu    sync.Mutex
	freeHead  atomic.Uint64 // tag<<32 | index+1
)

type slab [slabSlots]slot

func slotAt(index uint32) *slot {
	return &slabs[(index-1)/slabSlots].Load()[(index-1)%slabSlots]
}

// Live returns the number of tensors that are held: made by [Export] or [Import] and neither released nor
// detached. It scans all slots, and is meant for tests and reports.
func Live() int {
	slabMu.Lock()
	defer slabMu.Unlock()
	n := 0
	for i := range slabCount {
		for j := range slabs[i].Load() {
			n += int(slabs[i].Load()[j].word.Load() & 1)
		}
	}
	return n
}

// takeSlot takes a free slot; nil if C is out of memory or the table is full.
func takeSlot() *slot {
	for {
		head := freeHead.Load()
		index := uint32(head)
		if index == 0 {
			if !growSlots() {
				return nil
			}
			continue
		}
		s := slotAt(index)
		if freeHead.CompareAndSwap(head, (head>>32+1)<<32|uint64(s.next.Load())) {
			return s
		}
	}
}

// tensor returns the handle of a slot that C filled and made live.
func (s *slot) tensor() Tensor { return Tensor{s, s.word.Load() >> 1} }

// pushFree returns a slot without a tensor to the free list.
func (s *slot) pushFree() {
	for {
		head := freeHead.Load()
		if next := uint32(head); s.next.Load() != next { // usually equal; a store costs as much as a swap
			s.next.Store(next)
		}
		if freeHead.CompareAndSwap(head, (head>>32+1)<<32|uint64(s.index)) {
			return
		}
	}
}

// growSlots adds a slab of free slots unless another goroutine has just done so.
func growSlots() bool {
	slabMu.Lock()
	defer slabMu.Unlock()
	if uint32(freeHead.Load()) != 0 {
		return true
	}
	if slabCount == maxSlabs {
		return false
	}
	memory := (*slab)(newZeroed(unsafe.Sizeof(slab{})))
	if memory == nil {
		return false
	}
	base := uint32(slabCount * slabSlots)
	slabs[slabCount].Store(memory)
	slabCount++
	for i := slabSlots - 1; i >= 0; i-- {
		memory[i].index = base + uint32(i) + 1
		memory[i].pushFree()
	}
	return true
}
