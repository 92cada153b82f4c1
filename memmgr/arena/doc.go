// Package arena gives a request its own memory: what it allocates is counted together,
// bounded together, and ends with it.
//
// An [Arena] stands between a request and the resources that the program has: pools,
// tenants of pools. [Arena.Over] makes a [Memory] of such a resource, a memmgr.Resource like
// any other, whose memory comes from there and is the arena's to count. One arena may
// stand over several, so that one limit holds for the host's memory and a device's.
//
//	a := arena.New(arena.Options{Name: id, Limit: 64 << 20})
//	defer a.End()
//	x, err := usmarray.New(a.Over(tenant), usmarray.Float32, shape) // no Release needed
//	out, err := executor.Call(arena.NewContext(ctx, a), "model:infer", x)
//
// # Who owns what
//
// An array that usmarray makes straight from an arena's memory (New and its sisters, copies
// into it) belongs to the arena: End releases it. Releasing it before is allowed and gives
// the memory back at once; [Arena.Keep] takes it out, and it is the caller's then, who
// releases it. Whatever else the request has can be given to the arena by [Arena.Own]: an
// array from elsewhere, a memmgr.Buffer. A buffer of memmgr.New is the caller's, as from any
// resource, until it is given.
//
// An array that the arena has released panics on use with memmgr.ErrReleased, as after a
// Release of one's own; so do buffers. A slice of its memory must not be used any more.
//
// # What is held beyond the end
//
// End gives up the arena's own references and nobody else's. Memory that others hold stays as
// it is: an array that Retain made, a tensor that a consumer has not deleted, an Array that
// Python code put into a global. None of them dangles. End returns what is left, by tag
// (memory that Python allocated has the tag "python"), [Arena.Left] tells it again later, and
// [Outstanding] counts it over all arenas that have ended: a service whose functions keep what
// they should not sees that number grow. It still counts for the resource below, a tenant or
// a limit, until it is let go. For each piece of it memmgr.Live tells references and stack;
// its Resource is the [Memory].
//
// Nothing is allocated from an arena that has ended: memmgr.ErrClosed.
//
// # In Python
//
// A context made by [NewContext] takes the arena into calls of Python: package pymodule takes
// the memory of arrays that the code of such a call makes from it. See there. A call that runs
// in a process of its own (interop/workers) allocates there, as without an arena.
//
// # Threads and cost
//
// All methods may be called from any goroutine. End is for when the request's work is over:
// what still allocates then gets an error. An allocation takes one lock of the arena and a
// cell of its own: with its free half a microsecond, where a pool alone takes 25 ns; an arena
// itself costs 0.4 us, and 4 us more for the first allocation above each resource
// (BenchmarkArena). End costs what its releases cost. Without an arena nothing of this is paid.
package arena
