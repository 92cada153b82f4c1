package memmgr

import (
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
)

// The meaning of some fields of an owner cell depends on the owner of the memory and on the state
// of the block: docs/internals.md has a table. Accessors name the meanings; those of blocks
// are in package block.

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

// rankLocks gives the locks of a new pool their ranks.
func rankLocks(p *Pool) {
	block.SetRank(&p.purging.Mu, block.RankPurging)
	block.SetRank(&p.pending.Sweeping, block.RankSweeping)
	block.SetRank(&p.mu.Mutex, block.RankPool)
}
