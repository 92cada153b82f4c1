// Package pin lets a goroutine hold on to a shard of data for the few
// nanoseconds that it works on it.
//
// In the fast form ([Fast]) the shard is that of the processor (P) that runs the
// goroutine: [Pin] stops preemption, so nobody else on that P can come between,
// and whoever must reach another P's shard first makes every running thread pass
// a barrier ([Barrier]). The fast path then costs no locked instruction.
//
// Whoever holds on to a shard says so by a plain store, and then looks whether
// somebody wants to stop it; whoever wants to says so, has everybody pass a barrier,
// and then looks whether the shard is held. The model checker among the tests of this
// package goes through all interleavings of that, on processors with store buffers.
// The race detector sees the same code: it is told of the order that pinning makes
// among the users of a shard ([Acquire], [Release]), and nothing else.
//
// The portable form, for other systems and under the tag usmb_portable, gives a hint
// which shard to lock.
package pin
