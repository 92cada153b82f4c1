// Package memmgr allocates memory for the host and for SYCL devices, counts its references,
// and frees it when the work that uses it is complete.
//
//	usmarray, interop, C code
//	     |  New, Retain, Release
//	  Buffer        a reference-counted handle of a block
//	     |
//	  Tenant        an account with limits and a weight (optional)
//	     |
//	  Pool          caches, waits, statistics
//	     |
//	  Limit         bounds the bytes of one or more pools (optional)
//	     |
//	  Host, USM, package segment, package umf
//
// A [Resource] is a source of memory: [Host] for page-backed memory of the process, [USM]
// for SYCL unified shared memory of one context, device and kind, or a wrapper around
// another resource. [New] turns memory of a resource into a [Buffer]. [Default] returns the
// pool that the process shares for a place; [NewPool] makes one. [As] finds an ability of a
// wrapped resource by its type.
//
// Related packages: arena (memory of one request), segment (memory that other processes can
// map), umf (pools of the Unified Memory Framework), report (pictures, tables and profiles),
// memtest (a simulated device and a conformance suite). The page docs/internals.md of the
// repository describes how the pool works inside: the states of a block, the order of locks
// and the words that this package uses.
//
// # Ownership
//
// New, [FromForeign] and [Buffer.Retain] return a reference that one Release must end. Copying a
// Buffer copies the handle and retains nothing. The last Release returns the memory to its
// resource, immediately when Go releases it and through a background goroutine when C does.
// Use after release panics with a [*UseError]; another Release does nothing. A buffer keeps
// its SYCL context alive.
//
// # Pending work
//
// Work on a queue may outlive the call that submitted it. [Buffer.SetPending] records its
// event and [Buffer.Wait] waits for it. Memory that is released with pending work is reused
// when the event is complete, or earlier by a request for the same in-order queue. Memory
// that was exported through an exchange protocol is reused behind a barrier on each queue
// that it was used on.
//
// Wait, the copies, [Buffer.Bytes] and the next SetPending return the failure of work. If
// memory is released without waiting, a failure is not reported: call Wait first where it
// matters. Work that has not completed ten seconds after the release of its memory counts
// as stalled. The pool checks such memory four times a second and reuses it when the work
// completes. [Flush] and [Pool.Close] do not wait for it.
//
// # Waiting for memory
//
// A request without a context succeeds or fails immediately. A request with one
// ([Request.Context]) waits in its pool: for room under the limits, for device work to
// complete, or for idle memory of other pools. Among requests of similar size the oldest
// is served first. A large request does not stop small ones, and small ones do not starve it:
// the pool reserves segments for it after a while. When the context ends, the request fails
// with an [*OutOfMemoryError] that wraps the context's error. A request that no limit could
// ever allow fails immediately.
//
// # Tenants
//
// [Pool.NewTenant] makes an account with a pool: a resource with a hard limit that it never
// exceeds, a soft limit above which it is served last while other requests wait, and a weight by
// which waiting tenants share freed memory. A tenant at its hard limit delays no other.
// Memory with pending work counts until the work is complete. Errors name the largest
// holders by tenant and tag.
//
// # Threads and background work
//
// Resources and buffers are safe for concurrent use; access to the bytes is not
// synchronized. Release never blocks on a device. C may drop references on any thread, and
// in a forked child, which must not use the Go side.
//
// Importing the package starts nothing. While there are pools, or memory with pending work
// and no pool, one goroutine completes freed memory and returns idle memory to its resource.
// Another one frees memory that C code dropped. Flush and Close use one more while they wait
// for an event. Nothing runs at the end of the process.
//
// # Idle memory
//
// Caches hold free memory in excess of a sixth of the pool's bytes, and at least 32 MiB;
// [WithCache] sets another bound. Idle memory returns to the upstream after the time of
// [WithDecay], above the marks of [WithRetention], by [Pool.Trim], and before a request
// fails. Where the upstream is a [Discarder] (host memory; USM of an OpenCL CPU device), the
// pool also returns whole pages inside segments that are in use. Other memory returns by
// whole segments; the heap fills the lowest segment that fits, so that segments become empty.
//
// [Pool.Sleep] releases the pages of buffers in use, by tag. The buffers stay at their
// addresses, and [Pool.Wake] brings the memory back, with its contents where they were saved.
// Sleep refuses while the memory is known to be in use. It cannot know of slices from
// [Buffer.Bytes], of addresses from [Buffer.Data], or of work that [Buffer.SetPending] or
// [Buffer.UsedOn] did not record: such a slice reads zeros, and writes through it are lost.
//
// # Finding leaks
//
// [Live] lists the memory that is still referenced; package report writes it as text and as
// a profile for pprof. With [RecordStacks] each entry has its place of allocation. Pool.Close
// returns a [*LeakError] when buffers are in use, and memtest.Main fails a test binary that
// leaks. [DebugEnv] turns on these and other checks; [SetLogger] receives failures
// that reach no caller.
//
// # Costs
//
// A pool allocates and frees a block in about 20 ns. Block sizes waste at most 12.5 % below
// 32 KiB and 1.6 % above. A live block takes about 160 bytes of Go and C memory. The program
// membench compares the pool with its peers.
package memmgr
