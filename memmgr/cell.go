package memmgr

import (
	"github.com/usmbridge/usmbridge/internal/owner"
)

// The meaning of some fields of an owner cell depends on the owner of the memory and on the state
// of the block: docs/internals.md has a table. Accessors name the meanings.

// blockClass returns the size class of a block of a pool, or noClass. The block is not
// pending: see [pendingClass].
func blockClass(c *owner.Cell) int {
	checkNotPending(c)
	return int(c.Private)
}

func setBlockClass(c *owner.Cell, class int) { c.Private = uint64(class) }

// chargedTenant returns the number of the tenant that is charged with a block of a pool, 0 for
// none.
func chargedTenant(c *owner.Cell) uintptr { return c.Context }

func setChargedTenant(c *owner.Cell, number uintptr) { c.Context = number }

// foreignNumber returns the number of the record of foreign memory.
func foreignNumber(c *owner.Cell) uint32 { return uint32(c.Context) }

func setForeignNumber(c *owner.Cell, number uint32) { c.Context = uintptr(number) }

// setUpstreamBlock stores the parts of the block of another resource that have no field in the
// cell, for [upstreamBlock].
func setUpstreamBlock(c *owner.Cell, b Block) {
	c.Context, c.Private = uintptr(b.Cookie), uint64(b.Align)
}

// upstreamBlock returns the block of a resource that is not a pool.
func upstreamBlock(c *owner.Cell) Block {
	return Block{
		Address: c.Address, Size: uintptr(c.Size), Requested: uintptr(c.Requested),
		Align: uintptr(c.Private), Cookie: uint64(c.Context),
	}
}

// blockState is the part of the pool that holds a block, or its use. docs/internals.md shows the
// states with their transitions, and the meaning of each field of the owner cell in each state.
//
// The state is not stored: each part knows the state of the blocks that it has. The functions
// that change it call [setState], which checks the transition in builds with the tag usmb_checks.
type blockState uint32

const (
	stateFree     blockState = iota // in the heap, without a cell
	stateInHand                     // held by one goroutine, on its way to another state
	stateInUse                      // buffers or C refer to it
	stateCached                     // in a magazine of a shard or of the depot
	stateReturned                   // exported memory that waits for a barrier
	statePending                    // its device work has not finished
	stateStalled                    // as pending, for longer than stallTime
)

// lockRank is the place of a lock in the lock order: a goroutine that holds a lock acquires only
// locks of higher ranks. docs/internals.md says what each lock guards.
type lockRank uint8

const (
	rankPurging       lockRank = iota + 1 // purging.mu
	rankSweeping                          // pending.sweeping
	rankGrowing                           // Pool.growing, a channel: checked, not held
	rankPendingChange                     // addingPending
	rankPool                              // Pool.mu
	rankTenant                            // Tenant.mu
	rankLeaf                              // keeper.mu, queues.mu
)

// rankLocks gives the locks of a new pool their ranks.
func rankLocks(p *Pool) {
	setRank(&p.purging.mu, rankPurging)
	setRank(&p.pending.sweeping, rankSweeping)
	setRank(&p.mu.rankedMutex, rankPool)
}

func init() {
	setRank(&addingPending, rankPendingChange)
	setRank(&keeper.mu, rankLeaf)
	setRank(&queues.mu, rankLeaf)
}
