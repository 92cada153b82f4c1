// Package memmgr allocates memory for the host and for SYCL devices, counts its references,
// and frees it when the work that uses it is complete.
//
//	pool := memmgr.NewPool(memmgr.USM(queue, syclobj.USMShared), memmgr.WithLimit(1<<30))
//	b, err := memmgr.New(pool, memmgr.Request{Size: 4096, Tag: "samples", Context: ctx})
//	defer b.Release()
//	err = memmgr.CopyIn(b, 0, []float32{1, 2, 3}) // package usmarray has typed, shaped arrays
//	err = pool.Close()                            // a *LeakError if buffers are in use
//
// Each layer takes its memory from the layer below it:
//
//	Buffer   a reference-counted handle of a block
//	Tenant   an account of a pool, with limits and a weight (optional)
//	Pool     caches, waiting, statistics
//	Limit    bounds the bytes of one or more pools (optional)
//	source   Host, USM, a resource of package segment
//
// All but Buffer are a [Resource]. [Host] is page-backed memory of the process, [USM] is SYCL
// unified shared memory of one context, device and kind. [Default] returns the pool that the
// process shares for such a place; [NewPool] makes one. [As] finds an interface of a wrapped
// resource.
//
// Related packages: arena (memory of one request), segment (memory that other processes can
// map), report (pictures, tables and profiles), memtest (a simulated device and a conformance
// suite). docs/memory.md is the guide for users; docs/internals.md describes how the pool
// works inside.
//
// # Ownership
//
// [New], [FromForeign] and [Buffer.Retain] return a reference that one Release must end.
// Copying a Buffer copies the handle and retains nothing. The last Release returns the memory
// to its resource. A buffer keeps its SYCL context alive. The garbage collector frees nothing:
// [Live] lists the memory that is still referenced.
//
// [Buffer.SetPending] records device work on the memory, and [Buffer.Wait] waits for it. Memory
// that is released with pending work is reused when the work is complete, or earlier by a
// request for the same in-order queue.
//
// # Thread safety
//
// Resources and buffers are safe for concurrent use. Access to the bytes is not synchronized.
// Release never blocks on a device. C may drop references on any thread, and in a forked child,
// which must not use the Go side.
//
// Importing the package starts nothing. While there are pools or memory with pending work, one
// goroutine completes freed memory and returns idle memory to its resource. Another one frees
// memory that C code dropped. [Flush] and [Pool.Close] use one more while they wait for an event.
//
// # Errors
//
// A request that cannot be served fails with an [*OutOfMemoryError], which lists the largest
// holders. If it has a context, it waits for memory first, and the error also wraps the error
// of the context. Invalid requests and closed resources are an [*OpError]. The Err… variables are
// the kinds of errors, for errors.Is.
//
// Mistakes of the program, such as use after release, are panics with a [*UseError]. A second
// Release does nothing. [DebugEnv] turns on checks that find more mistakes, and [SetLogger]
// receives failures that reach no caller.
package memmgr
