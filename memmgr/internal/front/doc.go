// Package front has the caches of free blocks of a pool, by size class.
//
// A [Front] has one [Shard] for each processor, with one bin for each class. It is the only part of a pool on the
// fast path of an allocation and of a release. A bin holds up to two magazines of blocks. The [Depot] holds the
// magazines of no shard. The [Budget] bounds the bytes in both, and on the way between them.
//
// A goroutine enters the shard of its processor ([Front.Enter], or [Front.Claim] on the fast path), takes or puts
// blocks, and leaves it. Nothing may block in between. [Front.Stop] keeps all goroutines off the shards until
// [Front.Resume]: the goroutine that holds the lock of the pool does so to read all counts, to evict blocks,
// or to change the pressed mode. Where the processor cannot be pinned, each shard has a mutex.
//
// A shard writes only the counts that the fast path needs. The other ones follow from them: blocks that were
// handed out, ever, are blocks from the depot and of frees, less those in the bin. The shard publishes the
// bytes in use in steps ([Shard.TakeChange]). A [Share] is a tenant's part of a shard.
//
// The package knows no pool: methods return magazines that leave the front, and the caller puts them into
// the depot or frees their blocks. docs/internals.md has the words and the lock order. "The caller's shard" is one that
// the calling goroutine entered; "the lock of the pool is held" is written in the comments of methods that
// need it.
package front
