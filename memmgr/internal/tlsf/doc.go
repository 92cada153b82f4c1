// Package tlsf divides segments of address space into blocks by two-level segregated fit. Its bins are
// ordered, so a request gets the best fit, and succeeds if any free block is large enough. Finding,
// splitting and merging take time logarithmic in the number of blocks of one bin. Only aligned
// requests may search longer ([Heap.AllocAny]).
//
// All metadata is in Go memory: 32 bytes per block, with 32-bit links. The package never accesses the
// memory that it divides, which may belong to a device. Sizes and offsets are in units of [Unit]
// bytes.
//
// A Heap is not safe for concurrent use; the caller locks it.
package tlsf
