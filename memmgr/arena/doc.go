// Package arena gives a request memory of its own, which is counted together, bounded
// together, and released at the end of the request.
//
// An [Arena] stands between a request and the resources of the program: pools and tenants of
// pools. [Arena.Over] makes memory over such a resource: a memmgr.Resource that takes its
// memory from there and counts it for the arena. One arena may have memory over several
// resources, so that one limit holds for host and device memory together.
//
//	a := arena.New(arena.Options{Name: id, Limit: 64 << 20})
//	defer a.End()
//	x, err := usmarray.New(a.Over(tenant), usmarray.Float32, shape) // no Release needed
//	out, err := executor.Call(arena.NewContext(ctx, a), "model:infer", x)
//
// # Ownership
//
// The arena owns the arrays that usmarray makes directly from its memory (New, its variants,
// and copies into it): End releases them. A Release before that frees the memory immediately.
// [Arena.Keep] returns the ownership of an array to the caller. [Arena.Own] gives the arena
// another value, such as an array from elsewhere or a memmgr.Buffer. A buffer that memmgr.New
// returns belongs to the caller, as with any resource.
//
// An array or buffer that the arena has released panics on use with memmgr.ErrReleased. A
// slice of its memory must not be used any more.
//
// # Memory that outlives the arena
//
// End releases only the references of the arena. Memory with other references stays valid:
// an array that Retain returned, a tensor that its consumer has not deleted, an Array that
// Python code stored in a global. End returns the remaining memory by tag (memory that Python
// allocated has the tag "python"). [Arena.Left] returns it again later, and [Outstanding]
// adds it up over all arenas that have ended: the number grows if functions of a service keep
// memory by mistake. Such memory still counts for the resource below, a tenant or a limit.
// memmgr.Live lists references and stack of each piece; its Resource is the memory of the arena.
//
// After End, allocations from the arena fail with memmgr.ErrClosed.
//
// # In Python
//
// A context of [NewContext] passes the arena to calls of Python: package pymodule then
// allocates the arrays of the called code from it. A call that runs in a process of its own
// (interop/workers) allocates there, without the arena.
//
// # Threads and cost
//
// All methods are safe for concurrent use. Call End when the work of the request is over: a
// later allocation fails. An allocation takes a lock of the arena and a cell of its own, half
// a microsecond with its free, where a pool alone takes 25 ns. An arena costs 0.4 us, and the
// first allocation over each resource another 4 us (BenchmarkArena). End costs as much as its
// releases.
package arena
