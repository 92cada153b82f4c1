// Package tlsf divides segments of address space into blocks: two-level
// segregated fit, in which finding, splitting and merging take a bounded number
// of steps however many blocks there are.
//
// All bookkeeping is in Go memory, 32 bytes a block, with 32-bit links; nothing
// is ever read from or written to the memory that is divided, which may belong
// to a device. Sizes and offsets are counted in units of [Unit] bytes.
//
// A Heap is not safe for concurrent use; its owner locks.
package tlsf
