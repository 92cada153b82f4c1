package memmgr

import "github.com/usmbridge/usmbridge/internal/owner"

// Tick runs one tick of the keeper for the pool.
func (p *Pool) Tick() (ended bool) { return p.tick() }

// Press begins or ends the pressed mode.
func (p *Pool) Press(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.press(on)
}

// BudgetLeft returns the unused bytes of the cache bound.
func (p *Pool) BudgetLeft() int64 { return p.front.budget.left.Load() }

// Inside returns the cell, as Cell does, but does not mark it as shown to C.
func (b Buffer) Inside() *owner.Cell { return b.ref.Cell() }

// ResidentBytes is residentBytes.
func ResidentBytes(address, size uintptr) uintptr { return residentBytes(address, size) }

// Untended removes the pool from the keeper, so that only Tick advances its clock.
func (p *Pool) Untended() { keeper.remove(p, false) }

// TickTime is the time between two ticks.
const TickTime = tickTime

// HoldQueues locks the table of queues until the returned function is called.
func HoldQueues() (let func()) {
	queues.mu.Lock()
	return queues.mu.Unlock
}

// StacksRecorded returns the depth of the stacks that are recorded.
func StacksRecorded() int { return int(stackDepth.Load()) }

// ClearPending removes the pending event of a buffer whose work is known to be complete.
func (b Buffer) ClearPending() {
	c := b.live("ClearPending")
	if event := swapPending(c, 0); event != 0 {
		systemEvents.ReleaseEvent(event)
	}
}

// DefaultPools returns the number of default pools.
func DefaultPools() int {
	defaults.mu.Lock()
	defer defaults.mu.Unlock()
	return len(defaults.m)
}
