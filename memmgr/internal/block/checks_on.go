//go:build usmb_checks

package block

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// legal lists the transitions between the states of a block.
var legal = [...][]State{
	Free:     {InHand},
	InHand:   {InUse, Cached, Pending, Free},
	InUse:    {Cached, Returned, Pending, Free},
	Cached:   {InUse, InHand, Free},
	Returned: {Pending, Cached, Free},
	Pending:  {Stalled, InHand},
	Stalled:  {InHand},
}

var stateNames = [...]string{"free", "in hand", "in use", "cached", "returned", "pending", "stalled"}

func (s State) String() string { return stateNames[s] }

// cellStates has the state of each cell's block by the number of the cell, in chunks that are
// allocated when a cell of them is used for the first time.
var cellStates [1 << 13]atomic.Pointer[[1 << 13]atomic.Uint32]

// SetState notes that a block changes its state. It panics on a transition that does not exist.
func SetState(c *owner.Cell, to State) {
	chunk := &cellStates[c.Index()>>13]
	if chunk.Load() == nil {
		chunk.CompareAndSwap(nil, new([1 << 13]atomic.Uint32))
	}
	from := State(chunk.Load()[c.Index()&(1<<13-1)].Swap(uint32(to)))
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
	if s := State(chunk[c.Index()&(1<<13-1)].Load()); s == Pending || s == Stalled {
		panic(fmt.Sprintf("memmgr: block at %#x: the state %q has no size class in this field", c.Address, s))
	}
}

// Mutex is a mutex that panics when a goroutine acquires it while it holds a mutex of the
// same or of a higher rank.
type Mutex struct {
	sync.Mutex
	rank Rank // 0: not checked
}

// SetRank gives a mutex its rank. Without one it is not checked.
func SetRank(m *Mutex, rank Rank) { m.rank = rank }

func (m *Mutex) Lock() {
	if m.rank != 0 {
		CheckRank(m.rank)
	}
	m.Mutex.Lock()
	m.note()
}

func (m *Mutex) TryLock() bool {
	locked := m.Mutex.TryLock()
	if locked {
		m.note()
	}
	return locked
}

func (m *Mutex) Unlock() {
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
func (m *Mutex) note() {
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

// CheckRank panics when the goroutine holds a lock of this rank or of a higher one.
func CheckRank(rank Rank) {
	heldRanks.Lock()
	held := heldRanks.of[pin.Goroutine()]
	heldRanks.Unlock()
	if highest := bits.Len32(held) - 1; highest >= int(rank) {
		panic(fmt.Sprintf("memmgr: lock order: acquiring a lock of rank %d while holding one of rank %d", rank, highest))
	}
}
