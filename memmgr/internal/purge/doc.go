// Package purge returns the pages of free memory to the system.
//
// A pool gives whole segments back to its upstream. A segment with a block in use stays, but the upstream may be able
// to return the whole pages of the free blocks beside it. A [Purger] takes these blocks out of the heap in portions,
// has their pages returned without a lock of the pool, and gives the blocks back. A block is purged once: the heap
// remembers it until the block merges with another one or is used again.
//
// While blocks are out, their segment counts as in use. A goroutine that must see every free block locks Purger.Mu,
// which precedes the lock of the pool.
package purge
