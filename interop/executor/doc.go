// Package executor runs functions of Python for a service written in Go: on a fixed
// number of threads, from a bounded queue, each call bounded by its context and apart
// from the others.
//
// Bare goroutines that call Python wait for the GIL on a thread each, as many as there
// are clients; none of them can give up, one that hangs in C code hangs its client, and
// what runs at the same time as what is left to chance. Here the clients wait in Go, a
// bounded number of them, with contexts.
//
// Clients and slots wake each other, which costs more than a short call does. So a slot makes
// several short calls in a row, in one entry into Python, their arguments written down by
// their callers meanwhile (interop/internal/calls), and hands their results over together.
// 32 goroutines that call a compiled function of a few microseconds get more calls in this
// way than by themselves, for less CPU: BenchmarkNumbaCalls has both in one run.
//
// # Calls
//
// A function is named by its module and its name in there, "models.sobel:infer"; it is
// imported by the first call and kept. Arguments are what python.Interpreter.New takes,
// a python.Kwargs last for keywords; *usmarray.Array stands for a usmbridge.Array on the
// same memory, by itself and in slices and maps of any. Results are what
// python.Object.Value gives, with each array, ours or of others, as a *usmarray.Array on
// the memory that Python made, owned by the caller.
//
// What dpnp and dpctl were told to write into an argument that is USM, and may still be at when
// the function returns, is waited for before Call returns, after an exception too: 5 to 10 us for
// each such argument whose memory anybody was shown by DLPack or the dictionary. One that is read-only
// (AsReadOnly), and one that only compiled functions, NumPy or Python's own code had, take none.
//
// With an arena (memmgr/arena) in its context a call's arrays are the request's memory: see
// package pymodule, Memory of a call.
//
// # Slots and the lane
//
// A slot is a goroutine that is locked to an OS thread while it is in Python. There are
// Config.Slots of them for all functions but those that Config.Serial names: these run on
// the lane, one slot more, one call at a time. That is for libraries that fail under concurrent
// calls: dpnp on the OpenCL CPU driver deadlocks when its first calls are made by several
// threads at once, and hangs or crashes with one queue used by many.
//
// Calls follow each other in a row where their functions took less than 25 us the last time, and
// a row less than 100 us together. When one of them takes longer all the same, results that are
// there are handed over meanwhile, and the calls behind it go back to the queue, first in it, for
// other slots. While a slot is in such a row the next short calls wait for it rather than wake
// another slot, with which it would only take turns.
//
// More slots than one help where Python code waits, or works in C without the GIL. Under
// the GIL they only take turns.
//
// # Warm-up
//
// The steps of Config.Warm run on one slot in order, before any call: imports, Numba's
// compiler, the first call of a library that must be made by one thread alone. Health says
// which step runs. When one fails the executor refuses all calls with that error.
//
// # What happens to a call
//
//   - no place in the queue: ErrFull at once, or, with Config.Wait, a wait for one
//   - its context ends while it waits, for a slot or for the GIL: python.ErrNotBegun, and
//     its place is free
//   - its context ends while it runs: it is interrupted as python.Object.CallContext
//     describes, and the caller hears at its end what became of it
//   - it still runs Config.Grace later: the caller gets ErrStuck and the slot counts as
//     stuck, since nothing can end C code but the end of the process; what the call
//     gives in the end is dropped. Up to Config.Spare such slots are replaced while they
//     are stuck. The lane is not: another thread would break its promise.
//     An import, by a function's first call, is not interrupted, nor is the conversion of
//     arguments, whose end its caller waits for.
//   - a caller whose context never ends waits for the end of its call, however long it is
//   - an exception, or a panic of Go code, is its error, of it alone; with the context's, where
//     that has ended by then. The error has the texts and classes of the exception but not the
//     object, which could keep arguments of the call alive
//
// Each of these is an *Error with the function's name, but ErrFull. errors.Is sees its Kind, the
// context's error and the exception.
//
// # Health
//
// Health is nil when a call can be expected to be served: not while steps of the warm-up
// run or one has failed, while the lane or every slot is stuck, when Close has been
// called, when Python has ended. It is what a readiness probe asks. Stats tells the age of
// the oldest running call, for calls without a deadline, which cannot be called stuck.
//
// # The end
//
// Close takes no new calls and lets those that wait and run come to their end; with its
// context they are refused, or interrupted, and one more Config.Grace is waited. Threads
// of stuck calls stay, and Close tells how many in its error. When Python ends first,
// calls that wait get python.ErrGone.
package executor
