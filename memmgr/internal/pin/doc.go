// Package pin lets a goroutine hold on to a shard of data for the few
// nanoseconds that it works on it.
//
// In the fast form ([Fast]) the shard is that of the processor (P) that runs the
// goroutine: [Pin] stops preemption, so nobody else on that P can come between,
// and whoever must reach another P's shard first makes every running thread pass
// a barrier ([Barrier]). The fast path then costs no locked instruction.
//
// The portable form, for other systems, for the race detector and under the tag
// usmb_portable, gives a hint which shard to lock.
package pin
