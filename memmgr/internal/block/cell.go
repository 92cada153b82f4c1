package block

import "github.com/usmbridge/usmbridge/internal/owner"

// Class returns the size class of a block, or [NoClass]. The block is not pending: then the field has
// more parts.
func Class(c *owner.Cell) int {
	checkNotPending(c)
	return int(c.Private)
}

// SetClass sets the size class of a block.
func SetClass(c *owner.Cell, class int) { c.Private = uint64(class) }

// Tenant returns the number of the tenant that is charged with a block, 0 for none.
func Tenant(c *owner.Cell) uintptr { return c.Context }

// SetTenant sets the number of the tenant that is charged with a block.
func SetTenant(c *owner.Cell, number uintptr) { c.Context = number }

// State is the part of the pool that holds a block, or its use. docs/internals.md shows the states with
// their transitions, and the meaning of each field of the owner cell in each state.
//
// The state is not stored: each part knows the state of the blocks that it has.
type State uint32

// The states of a block.
const (
	Free     State = iota // in the heap, without a cell
	InHand                // held by one goroutine, on its way to another state
	InUse                 // buffers or C refer to it
	Cached                // in a magazine of a shard or of the depot
	Returned              // exported memory that waits for a barrier
	Pending               // its device work has not finished
	Stalled               // as pending, for longer than a deadline
)

// Rank is the place of a lock in the lock order: a goroutine that holds a lock acquires only locks of higher
// ranks. docs/internals.md says what each lock guards.
type Rank uint8

// The ranks of the locks of a pool.
const (
	RankPurging       Rank = iota + 1 // purge.Purger.Mu
	RankSweeping                      // pending.Set.Sweeping
	RankGrowing                       // Pool.growing, a channel: checked, not held
	RankPendingChange                 // addingPending
	RankPool                          // Pool.mu, and the locks of pending.Frees
	RankTenant                        // Tenant.mu
	RankLeaf                          // keeper.mu, queues.mu
)
