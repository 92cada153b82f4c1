// Package memmgr gives out memory, counts who uses it and takes it back.
//
// A [Resource] is a source of memory: [Host] for page-backed memory of the
// process, [USM] for SYCL unified shared memory of one context, device and
// kind, and whatever wraps another one. [New] turns memory of a resource into a
// [Buffer]: a small value that refers to a reference-counted owner cell (package
// owner), which C code on any thread can drop too.
//
// A [Pool] keeps memory of a resource ready: it gives and takes a block in some
// twenty nanoseconds, reuses memory in the order of queues, gives idle memory
// back, and tells where the memory is ([Pool.Stats], [Pool.Snapshot]). Small
// resources wrap any other: [Limit], [Statistics], [Track], [Record], [Poison],
// [OnFailure]; [Simulated] has addresses and no memory, for tests; package umf
// offers pools of the Unified Memory Framework. [As] finds the abilities of
// what is wrapped. [Default] is the pool that a process shares for a place.
//
// # Ownership
//
// New, [Wrap] and [Buffer.Retain] give a reference that one Release must end.
// Copying a Buffer value copies the handle and retains nothing. With the last
// reference the memory goes back to its resource: at once when Go releases it,
// by the reaper when C drops it. Use after release panics with a [*UseError].
//
// A buffer holds what its memory lives in: the context outlives every buffer
// allocated in it, whoever else let go of it.
//
// # Pending work
//
// Work on a queue may outlive the call that submitted it. [Buffer.SetPending]
// records its event; [Buffer.Wait] waits for it. Memory released with work
// pending is not freed in flight: it goes back when the event is done. Memory
// that left this process's hands through an exchange protocol goes back behind
// a barrier on its queue.
//
// A failure of work is told to whoever waits for it: Wait, the copies, Bytes, or
// the next SetPending. Memory that is released without waiting goes back when the
// work is over, failed or not, and the failure then reaches nobody: call Wait
// before Release where it matters.
//
// # Threads
//
// Resources and buffers are safe for concurrent use; the bytes of a buffer are
// guarded by nobody. Release never blocks on a device. C may drop references on
// any thread, in a process forked from this one as well; a forked child must not
// use the Go side.
//
// One goroutine looks after all pools four times a second while there are any,
// and one reaper takes back what C dropped. Nothing runs at the end of the
// process: memory in use then goes with it.
//
// # Finding leaks
//
// [WriteLeaks] and [Live] tell what is still referenced, [WriteProfile] writes
// it as a profile for pprof; with [RecordStacks] each says where the memory was
// allocated. Close of a pool returns a [*LeakError] when buffers are out, and
// memtest.Main fails a test binary that leaves any.
//
// # What it costs
//
// The program membench compares the pool with its peers. Caches of free blocks
// hold at most 64 MiB for each processor and 64 MiB between them; block sizes
// waste at most 12.5 % below 32 KiB and 1.6 % above; a live block takes about
// 160 bytes of Go and C memory.
package memmgr
