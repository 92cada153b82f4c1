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
// resources wrap any other: [Limit], [Record] and [NewPoison]; package umf offers pools of the Unified Memory Framework, package
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
// a barrier on each queue that it was used on since.
//
// A failure of work is told to whoever waits for it: Wait, the copies, Bytes, or
// the next SetPending. Memory that is released without waiting goes back when the
// work is over, failed or not, and the failure then reaches nobody: call Wait
// before Release where it matters. Where the runtime never calls an event done,
// because its work failed, the memory waits for [Flush] or for the pool's Close.
//
// Work that has not ended ten seconds after the release of its memory has stalled:
// the driver lost its event, or the work is that long. The memory stays out, is
// looked at four times a second, and goes back when the work ends after all; nobody
// waits for it, Flush and Close neither, and it holds up no other memory.
//
// # Waiting for memory
//
// A request without a context is served now or refused now, whatever a device is
// doing. With one ([Request.Context]) it waits in its [Pool]: for room under the
// limits, for work on the device to end, for other pools to give way. What waits
// longest of its size is served first; a large request does not stop small ones, and
// small ones do not starve it, because now and then the pool keeps segments for it until
// they are empty, while the others are served from the rest. Pools below one limit, or
// on one device, keep room for each other in the same way, for the request that has
// waited longest. An ended context gives an [*OutOfMemoryError] that wraps the context's
// error. What no limit below would ever allow is refused at once.
//
// # Tenants
//
// [Pool.NewTenant] makes an account with a pool: a [Resource] with a hard limit that
// it never exceeds, a soft one above which it comes last while anybody waits, and a
// weight by which those who wait share what comes back. One at its limit costs the
// others nothing: its requests wait, or are refused, before they reach the pool.
// Memory that was released with work pending counts until the work is done; a request
// that waits in the pool counts when it is served, and not before. Errors name the holders by tenant and tag.
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
// These goroutines of this module work by themselves.
//
// The keeper, in this package, is there while there are pools, or memory that was
// released with work pending and belongs to no pool. Its timer wakes it: four times
// a second for the pools, whose idle memory and idle pages it gives back, and after 0.1 to 10 ms
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
// Flush and the Close of a pool wait for one event at a time on a goroutine, which
// ends with the work; where the driver lost the event, it never does. At most sixteen
// of those that have stalled already are waited for in this way, each once.
//
// Package syclobj asks for the events that somebody waits for who can give up
// ([Buffer.WaitContext], syclobj's Event.Wait) on one goroutine, every 20 us to 5 ms. It
// is there while anybody waits. For work that failed in such a way that only the
// runtime's own wait tells, one more does that wait.
//
// Package interop/share has two goroutines for each connection, which wait for the other
// process's messages and for its end, and one that takes connections for each server. A
// timer of each server, and of each connection without one, looks up to four times a second
// for what is over; it runs while somebody is connected or a handle waits to be opened.
// One more goroutine sends to a process that does not read at once, and ends when it has
// read; one waits for the work on an array that is to be opened; one closes each descriptor
// that was sent and is of no memory, and nobody new is connected while there are 64.
//
// Package interop/pymodule has one for each process that was started with Arrays for arguments,
// until that ends, ten minutes at most.
//
// Package interop/python runs a call with a context on a goroutine of its own where its
// caller does not hold the interpreter's lock; one whose caller gave up stays until the
// lock has come to it, one at most. When the context of a running call ends, one more
// interrupts it. Package interop/executor has a goroutine for each of its slots and
// one for its lane, from New to Close, those in calls that do not stop until these end, and
// in Close one that waits for them. Package interop/workers has three for each worker, which see
// to its process, wait for its end and read what it writes, one on a thread of its own that starts
// them, and one that waits for the last; all from New to the end of Close. In a worker one reads
// what its maker sends, and one makes the call.
//
// Waiting for memory makes no goroutine: one of those who wait looks after the pool
// every 0.1 to 5 ms, and asks others to give way every 10 ms.
//
// # Memory with pages
//
// Where the upstream is a [Discarder] (host memory; USM of an OpenCL CPU device, once
// it was tried that its pages can go), a pool gives back the whole pages of free
// ranges inside segments that are in use, by the age of [WithDecay] and on Trim, so
// that what is resident follows what is used however it is scattered. Other memory
// goes back by whole segments alone; the heap gives the best fit in the lowest place,
// so that segments become empty.
//
// [Pool.Sleep] does so with memory that is in use, by tag: the buffers stay, at their
// addresses, and [Pool.Wake] brings the memory back, with its contents where they were
// saved. Sleep refuses while somebody else is known to hold the memory. It cannot know
// of a slice from [Buffer.Bytes], of an address from [Buffer.Data], or of work that
// nobody recorded with [Buffer.SetPending] or [Buffer.UsedOn]: such a slice reads
// zeros meanwhile, and what is written through it is lost.
//
// # Finding leaks
//
// [Live] lists the memory that is still referenced; package report writes it as text and
// as a profile for pprof. With [RecordStacks] each entry has its place of allocation. Close of a pool returns a [*LeakError] when buffers are out, and
// memtest.Main fails a test binary that leaves any. [DebugEnv] turns these and other
// checks on in a program as it stands; [SetLogger] is told of what reaches no caller.
//
// # What it costs
//
// The program membench compares the pool with its peers. Caches of free blocks
// hold what is out of use beyond a sixth of the reserve, at least 32 MiB, or what
// [WithCache] says, on all processors together; what a class did not need for the time
// of [WithDecay] leaves them while others work. Idle memory goes back to the upstream
// by that age, above the marks of [WithRetention], by Trim and before a request fails,
// in portions and outside of the pool's lock. Block sizes waste at most 12.5 % below
// 32 KiB and 1.6 % above; a live block takes about 160 bytes of Go and C memory.
package memmgr
