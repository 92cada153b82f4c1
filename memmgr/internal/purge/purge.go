package purge

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/heap"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
)

// Purger returns the pages of the free blocks of a heap.
type Purger struct {
	// Mu is held while free blocks are out of the heap, without the lock of the heap.
	Mu block.Mutex

	heap    *heap.Heap
	lock    sync.Locker // of the heap
	discard func(address, size uintptr) error
	failed  func(error)
	off     atomic.Bool  // there are no pages to return
	taken   []heap.Dirty // the portion in hand; guarded by Mu
}

// Init sets the heap with its lock, the function that returns pages, nil if the memory has none, and one that gets its
// errors, except for errors.ErrUnsupported. After an error, no more pages are returned.
func (p *Purger) Init(h *heap.Heap, lock sync.Locker, discard func(address, size uintptr) error, failed func(error)) {
	p.heap, p.lock, p.discard, p.failed = h, lock, discard, failed
	p.off.Store(discard == nil)
}

// Tick purges the free blocks that are idle for the age of decay.
func (p *Purger) Tick() { p.purge(true, 0) }

// All purges the free blocks in segments that are in use, until at most keep bytes of them are left. It returns the
// bytes that were in memory.
func (p *Purger) All(keep uint64) (freed uint64) { return p.purge(false, keep) }

// Await returns when no free block is out of the heap.
func (p *Purger) Await() {
	p.Mu.Lock()
	defer p.Mu.Unlock()
}

// Untouched reports whether no page of new memory is resident.
func (p *Purger) Untouched(address, size uintptr) bool {
	return !p.off.Load() && sysmem.Resident(sysmem.WholePages(address, size)) == 0
}

// purge purges portion by portion.
func (p *Purger) purge(idle bool, keep uint64) (freed uint64) {
	var cursor heap.Cursor
	for !p.off.Load() {
		n, ended := p.portion(&cursor, idle, keep)
		if freed += n; ended {
			break
		}
	}
	return freed
}

// portion purges one portion of blocks from the cursor on, and reports whether it was the last one.
func (p *Purger) portion(cursor *heap.Cursor, idle bool, keep uint64) (freed uint64, ended bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if ended = p.take(cursor, idle, keep); ended && len(p.taken) == 0 {
		return 0, true
	}
	for _, t := range p.taken {
		from, bytes := sysmem.WholePages(t.Address, t.Size)
		if bytes == 0 {
			continue
		}
		resident := sysmem.Resident(from, bytes)
		if err := p.discard(from, bytes); err != nil {
			p.off.Store(true)
			if !errors.Is(err, errors.ErrUnsupported) {
				p.failed(err)
			}
			break
		}
		freed += uint64(resident)
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.heap.GiveBack(p.taken, !p.off.Load())
	return freed, ended
}

// take takes a portion of blocks out of the heap, and reports whether there are no more. Mu is held.
func (p *Purger) take(cursor *heap.Cursor, idle bool, keep uint64) (ended bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.taken = p.taken[:0]
	if p.heap.DirtyBytes() <= keep {
		return true
	}
	p.taken, ended = p.heap.TakeDirty(cursor, idle, p.taken)
	return ended
}
