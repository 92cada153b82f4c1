package memmgr

import "github.com/usmbridge/usmbridge/internal/owner"

// The meaning of some fields of an owner cell depends on the owner of the memory and on the state
// of the block (docs/internals.md has a table). Only the accessors here, those of pending blocks
// and those of magazines use these fields.

// blockClass returns the size class of a block of a pool, or noClass or ownSegment. The block is
// not pending: see [pendingClass].
func blockClass(c *owner.Cell) int {
	checkNotPending(c)
	return int(c.Private)
}

func setBlockClass(c *owner.Cell, class int) { c.Private = uint64(class) }

// chargedTenant returns the number of the tenant that is charged with a block of a pool, 0 for
// none.
func chargedTenant(c *owner.Cell) uintptr { return c.Context }

func setChargedTenant(c *owner.Cell, number uintptr) { c.Context = number }

// wrapRecord returns the number of the record of wrapped memory.
func wrapRecord(c *owner.Cell) uint32 { return uint32(c.Context) }

func setWrapRecord(c *owner.Cell, number uint32) { c.Context = uintptr(number) }

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
