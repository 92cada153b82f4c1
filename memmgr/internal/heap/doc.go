// Package heap has the memory that a pool holds from its upstream.
//
// A [Heap] has segments, the blocks that they are divided into ([tlsf.Heap]) and the depot of cached blocks
// ([front.Depot]). All quantities are plain numbers: the package knows no pool, no request and no resource.
//
//   - A block is taken as an owner cell in the state "in hand": [Heap.Carve] takes the best fit, [Heap.CarveAny] any
//     block that is large enough, [Heap.TakeReserved] one that is reserved, and [Heap.Grow] the first one of a new
//     segment.
//   - It comes back through [Heap.Cache], which keeps it in the depot if the budget allows it, or through [Heap.Spill]
//     and [Heap.Dissolve] in magazines.
//   - A segment without blocks in use is out of use. Such segments form a list by age. They go back through the
//     function Drop of [Options]: on demand ([Heap.Release]), before growth ([Heap.Pay]), above a bound
//     ([Heap.Init] has its marks), or by age ([Heap.DecaySegments]).
//   - [Heap.CloseSegments] reserves segments for one request: they serve no other one, so that they become empty.
//   - [Heap.TakeDirty] takes free blocks out while their pages go back to the system.
//
// Segments of up to [Options.Shared] units serve requests of any size, larger ones only requests that are not much
// smaller: see [tlsf.Heap].
//
// The clock of a heap counts ticks. [Decay] is the age, in ticks, at which idle memory goes back. A block keeps the
// tick since which it is idle on its way from the caches to the segments.
//
// The lock of the pool guards a Heap; every method but [Heap.Reserved] requires it.
package heap
