package memmgr

import (
	"errors"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// purging gives the whole pages of free blocks back that lie in segments which
// are in use, where the upstream is a [Discarder]. A block is purged once: the
// heap remembers it until the block merges with another or is used again.
type purging struct {
	heap *heap

	// mu is held while free blocks are out of the heap, without Pool.mu. A goroutine that
	// must see every free block acquires it before Pool.mu.
	mu    block.Mutex
	to    Discarder     // nil: the memory has no pages
	off   atomic.Bool   // the upstream refused: it has none after all
	taken []purgedBlock // the portion in hand; guarded by mu
	bytes atomic.Uint64 // given back so far
}

type purgedBlock struct {
	block         int32
	address, size uintptr // whole pages of it
}

// purge gives back the pages of blocks that have been free for so many ticks,
// one portion from the cursor on, and returns the bytes that were in memory. ended
// reports that the cursor went through all blocks.
func (g *purging) purge(cursor *tlsf.Cursor, age uint32) (freed uint64, ended bool) {
	if g.to == nil || g.off.Load() {
		return 0, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	ended = g.takeDirty(cursor, age)
	for i := range g.taken {
		t := &g.taken[i]
		if t.size == 0 {
			continue
		}
		resident := sysmem.Resident(t.address, t.size)
		if err := g.to.Discard(t.address, t.size); err != nil {
			g.off.Store(true)
			if !errors.Is(err, errors.ErrUnsupported) {
				backgroundFailed("give pages of free memory back", err)
			}
			ended = true
			break
		}
		freed += uint64(resident)
	}
	g.giveBackDirty()
	g.bytes.Add(freed)
	return freed, ended
}

// takeDirty takes a portion of free blocks out of the heap, and reports whether
// there are no more. purging.mu is held.
func (g *purging) takeDirty(cursor *tlsf.Cursor, age uint32) (ended bool) {
	h := g.heap
	g.taken = g.taken[:0]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.Counts().DirtyUnits == 0 {
		return true
	}
	bytes := uintptr(0)
	for looks := 0; looks < purgeLooks && bytes < purgeBytes; looks++ {
		block, end := h.NextDirty(cursor, age, 1)
		if end {
			return true
		}
		if block < 0 {
			continue
		}
		t := purgedBlock{block: block}
		t.address, t.size = sysmem.WholePages(h.Address(block), h.Size(block))
		h.Take(block)
		h.SetUser(block, 0)
		g.taken = append(g.taken, t)
		bytes += t.size
	}
	return false
}

// giveBackDirty puts the blocks of takeDirty back into the heap. Blocks of a closed
// pool's last segments end here. purging.mu is held.
func (g *purging) giveBackDirty() {
	h := g.heap
	h.mu.Lock()
	defer h.mu.Unlock()
	purged := !g.off.Load()
	for _, t := range g.taken {
		seg := h.Segment(t.block)
		h.freed(seg, h.GiveBack(t.block, purged))
	}
}

// purgeAll gives back the pages of all free blocks in segments that are in use,
// except those of keep bytes.
func (g *purging) purgeAll(keep uint64) (freed uint64) {
	var cursor tlsf.Cursor
	for {
		g.heap.mu.Lock()
		held := g.heap.Counts().DirtyUnits * unit
		g.heap.mu.Unlock()
		if held <= keep {
			return freed
		}
		n, ended := g.purge(&cursor, 0)
		freed += n
		if ended {
			return freed
		}
	}
}

// tick is the decay of free blocks.
func (g *purging) tick(age uint32) {
	var cursor tlsf.Cursor
	for ended := false; !ended; {
		_, ended = g.purge(&cursor, age)
	}
}

// await returns when no free block is out of the heap for purging.
func (g *purging) await() {
	g.mu.Lock()
	defer g.mu.Unlock()
}

// untouched reports whether no page of new memory is resident.
func (g *purging) untouched(address, size uintptr) bool {
	if g.to == nil || g.off.Load() {
		return false
	}
	from, bytes := sysmem.WholePages(address, size)
	return sysmem.Resident(from, bytes) == 0
}
