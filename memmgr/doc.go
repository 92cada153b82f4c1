// Package memmgr gives out memory, counts who uses it and takes it back.
//
// A [Resource] is a source of memory: [Host] for page-backed memory of the
// process, [USM] for SYCL unified shared memory of one context, device and
// kind, and whatever wraps another one. [New] turns memory of a resource into a
// [Buffer]: a small value that refers to a reference-counted owner cell (package
// owner), which C code on any thread can drop too.
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
// # Threads
//
// Resources and buffers are safe for concurrent use; the bytes of a buffer are
// guarded by nobody. Release never blocks on a device.
package memmgr
