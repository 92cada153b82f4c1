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
// resources wrap any other: [Limit], [Statistics], [Track], [Record], [NewPoison],
// [NewOnFailure]; package umf offers pools of the Unified Memory Framework, package
// memtest a simulated device for tests. [As] finds the abilities of
// what is wrapped. [Default] is the pool that a process shares for a place.
//
// # Ownership
//
// New, [Wrap] and [Buffer.Retain] give a reference that one Release must end.
// Copying a Buffer value copies the handle and retains nothing. With the last
// reference the memory goes back to its resource: at once when Go releases it,
// by the reaper when C drops it. Use after release panics with a [*UseError];
// another Release does nothing.
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
// before Release where it matters. Where the runtime never calls an event done,
// because its work failed, the memory waits for [Flush] or for the pool's Close.
//
// # Threads
//
// Resources and buffers are safe for concurrent use; the bytes of a buffer are
// guarded by nobody. Release never blocks on a device. C may drop references on
// any thread, in a process forked from this one as well; a forked child must not
// use the Go side.
//
// Importing the package starts and asks for nothing. Nothing runs at the end of the
// process: memory in use then goes with it.
//
// # Background work
//
// Three goroutines of this module work by themselves.
//
// The keeper, in this package, is there while there are pools, or memory that was
// released with work pending and belongs to no pool. Its timer wakes it: four times
// a second for the pools, whose idle memory it gives back, and after 0.1 to 10 ms
// for the memory that waits, as does memory that joins it. It ends when there is
// nothing of either, and for good with [StopBackground]; then [Flush] does what it
// would have done.
//
// The reaper of package owner takes back what C dropped. The first resource or
// wrapped memory starts it; C's drop wakes it, through an eventfd, and only when it
// sleeps. It lives as long as the process, or until StopBackground. In the child of
// a fork it does not exist and nothing tries to wake it.
//
// The reaper of a list with a goroutine of its own (owner.OwnGoroutine): there is one
// such list, Python's, because taking objects back needs the interpreter's lock.
// Starting the interpreter starts it; C's drop wakes it, and Go's as well; closing
// the list ends its work.
//
// [Buffer.WaitContext] waits on a goroutine of its own, which ends with the work.
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
