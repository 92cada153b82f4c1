package memmgr

import (
	"cmp"
	"context"
	"fmt"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/pending"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
)

// Package pending has the freed blocks whose device work has not finished. The methods of this file connect
// it with the other parts of a pool.

// slowFree processes a dead cell that is not plain: it has pending work, a tag or a recorded
// stack, or other libraries were shown its memory.
func (p *Pool) slowFree(c *owner.Cell) {
	stacks.NoteRelease(c)
	p.noteGiven(c)
	if p.trace != nil {
		p.trace.add(traceFreeRequested, c)
	}
	if c.Tag != 0 {
		p.tagsOf(c).Add(c.Tag, -int64(c.Size), -1)
		c.Tag = 0
	}
	shown := c.Flags()&order.ShownFlags != 0 && p.ordered
	c.ResetFlags(p.flags)
	if !shown && !p.pending.Working(c) {
		p.endUse(c)
		p.cache(c, block.Class(c))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.Uncount(c, block.Class(c))
	if shown {
		p.pending.AddReturned(c)
		return
	}
	p.pending.Add(c)
	p.serveWaiters() // a request for the same queue may take it
}

// settle waits for the work of other libraries on released memory of the pool, if only a call whose caller waits may
// do so ([pending.Set.Settle]), or until the context, which may be nil, ends. It reports whether there was such memory and the wait succeeded.
// No lock is held.
func (p *Pool) settle(ctx context.Context) bool {
	if !p.pending.Unsettled() {
		return false
	}
	return order.Within(cmp.Or(ctx, context.Background()), p.pending.Settle) == nil
}

// settleFrees waits for the work of other libraries on released memory in no pool, as settle does, and reports whether the
// wait succeeded.
func settleFrees(ctx context.Context) bool {
	return !keeper.frees.Unsettled() || order.Within(cmp.Or(ctx, context.Background()), keeper.frees.Settle) == nil
}

// settleForWaiters is settle for pools that can serve a waiting request, in goroutines of their own.
func settleForWaiters(pools ...*Pool) {
	for _, p := range pools {
		if p.pending.Unsettled() {
			go p.settle(context.Background())
		}
	}
}

// settleAll settles the memory of all pools, and memory in no pool.
func settleAll() {
	for _, p := range keeper.all() {
		_ = p.pending.Settle()
	}
	settleFrees(context.Background())
}

// complete makes a block reusable whose free was counted before. p.mu is held.
func (p *Pool) complete(c *owner.Cell) {
	c.ResetFlags(p.flags)
	p.endUse(c)
	p.heap.Cache(c, block.Class(c))
}

// endUse ends the user's part in a block whose work is done.
func (p *Pool) endUse(c *owner.Cell) {
	p.uncharge(c)
	p.pending.DropWork(c)
	if p.trace != nil {
		p.trace.add(traceFreeCompleted, c)
	}
	p.poisonFree(c)
}

// sameQueue takes a block whose pending work is on the in-order queue of a request. p.mu is held.
func (p *Pool) sameQueue(w *want) *owner.Cell {
	if w.r.Queue == nil {
		return nil
	}
	queue := p.sync.QueueRef(w.r.Queue)
	if queue == 0 || !p.sync.SameOrder(queue, queue) {
		return nil
	}
	c := p.pending.TakeFor(queue, w.class, uint64(w.units)*unit, uintptr(w.align)*unit)
	if c != nil {
		p.uncharge(c)
		c.ResetFlags(p.flags)
	}
	return c
}

// reportStalled reports blocks that have stalled. p.mu is not held.
func (p *Pool) reportStalled(stalled uint64) {
	backgroundFailed("Pool.Release", &OpError{
		Op: "Pool.Release", Place: p.Place(),
		Err: fmt.Errorf("%d blocks of pool %q wait for work on the device: %w", stalled, p.options.name, pending.ErrStalled),
	})
}
