// Package pin gives a goroutine exclusive use of a shard of data for a few nanoseconds.
//
// In the fast form ([Fast]) a shard belongs to the processor (P) that runs the goroutine. [Pin]
// disables preemption, so no other goroutine on that P runs in between. Code that needs the shard of
// another P first makes every running thread pass a memory barrier ([Barrier]). The fast path then
// needs no locked instruction.
//
// The protocol: the user of a shard sets "in use" by a plain store, and then checks for a stop
// request. A goroutine that needs another P's shard sets the stop request, calls Barrier, and then
// checks "in use". The tests of this package check all interleavings by a model of processors with
// store buffers. The same code runs under the race detector: [Acquire] and [Release] declare the
// order that pinning establishes among the users of a shard, and no other order.
//
// In the portable form, for other systems and with the build tag usmb_portable, Pin returns a hint
// which shard to lock.
package pin
