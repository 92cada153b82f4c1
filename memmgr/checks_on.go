//go:build usmb_checks

package memmgr

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// legal lists the transitions between the states of a block.
var legal = [...][]blockState{
	stateFree:     {stateInHand},
	stateInHand:   {stateInUse, stateCached, statePending, stateFree},
	stateInUse:    {stateCached, stateReturned, statePending, stateFree},
	stateCached:   {stateInUse, stateInHand, stateFree},
	stateReturned: {statePending, stateCached, stateFree},
	statePending:  {stateStalled, stateInHand},
	stateStalled:  {stateInHand},
}

var stateNames = [...]string{"free", "in hand", "in use", "cached", "returned", "pending", "stalled"}

func (s blockState) String() string { return stateNames[s] }

// cellStates has the state of each cell's block by the number of the cell, in chunks that are
// allocated when a cell of them is used for the first time.
var cellStates [1 << 13]atomic.Pointer[[1 << 13]atomic.Uint32]

// setState notes that a block changes its state. It panics on a transition that does not exist.
func setState(c *owner.Cell, to blockState) {
	chunk := &cellStates[c.Index()>>13]
	if chunk.Load() == nil {
		chunk.CompareAndSwap(nil, new([1 << 13]atomic.Uint32))
	}
	from := blockState(chunk.Load()[c.Index()&(1<<13-1)].Swap(uint32(to)))
	for _, next := range legal[from] {
		if next == to {
			return
		}
	}
	panic(fmt.Sprintf("memmgr: block at %#x: illegal transition from %q to %q", c.Address, from, to))
}

// checkNotPending panics if the block is pending: then fields of its cell have other meanings.
func checkNotPending(c *owner.Cell) {
	chunk := cellStates[c.Index()>>13].Load()
	if chunk == nil {
		return
	}
	if s := blockState(chunk[c.Index()&(1<<13-1)].Load()); s == statePending || s == stateStalled {
		panic(fmt.Sprintf("memmgr: block at %#x: the state %q has no size class in this field", c.Address, s))
	}
}

// rankedMutex is a mutex that panics when a goroutine acquires it while it holds a mutex of the
// same or of a higher rank.
type rankedMutex struct {
	sync.Mutex
	rank lockRank // 0: not checked
}

func setRank(m *rankedMutex, rank lockRank) { m.rank = rank }

func (m *rankedMutex) Lock() {
	if m.rank != 0 {
		checkRank(m.rank)
	}
	m.Mutex.Lock()
	m.note()
}

func (m *rankedMutex) TryLock() bool {
	locked := m.Mutex.TryLock()
	if locked {
		m.note()
	}
	return locked
}

func (m *rankedMutex) Unlock() {
	m.note()
	m.Mutex.Unlock()
}

// heldRanks has a bit for each rank of which a goroutine holds a lock, by the address of the
// goroutine's descriptor.
var heldRanks = struct {
	sync.Mutex
	of map[uintptr]uint32
}{of: map[uintptr]uint32{}}

// note changes whether the goroutine holds the lock.
func (m *rankedMutex) note() {
	if m.rank == 0 {
		return
	}
	g := pin.Goroutine()
	heldRanks.Lock()
	defer heldRanks.Unlock()
	if heldRanks.of[g] ^= 1 << m.rank; heldRanks.of[g] == 0 {
		delete(heldRanks.of, g)
	}
}

// checkRank panics when the goroutine holds a lock of this rank or of a higher one.
func checkRank(rank lockRank) {
	heldRanks.Lock()
	held := heldRanks.of[pin.Goroutine()]
	heldRanks.Unlock()
	if highest := bits.Len32(held) - 1; highest >= int(rank) {
		panic(fmt.Sprintf("memmgr: lock order: acquiring a lock of rank %d while holding one of rank %d", rank, highest))
	}
}
