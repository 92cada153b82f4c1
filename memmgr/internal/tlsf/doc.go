// Package tlsf divides segments of address space into blocks: two-level
// segregated fit whose bins are ordered, so that a request gets the best fit, and
// no request fails while a block that fits is free. Finding, splitting and merging
// take steps that grow with the logarithm of the blocks in one bin. Only an aligned
// request may have to look further ([Heap.AllocLying]).
//
// All bookkeeping is in Go memory, 32 bytes a block, with 32-bit links; nothing
// is ever read from or written to the memory that is divided, which may belong
// to a device. Sizes and offsets are counted in units of [Unit] bytes.
//
// A Heap is not safe for concurrent use; its owner locks.
package tlsf
