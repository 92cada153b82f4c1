// Package executor runs Python functions for a service written in Go: on a fixed number of threads,
// from a bounded queue, with each call bounded by its context and isolated from the others.
//
//	e, err := executor.New(py, executor.Config{Slots: 2, Queue: 100, Warm: []string{"models:warm"}})
//	defer e.Close(ctx)
//	err = e.Ready(ctx)                             // waits for the warm-up
//	out, err := e.Call(ctx, "models:infer", x)     // errors.Is(err, executor.ErrFull): try again later
//	out.(*usmarray.Array).Release()                // the caller owns arrays in results
//
// Goroutines that call Python directly each occupy a thread while they wait for the GIL. They cannot
// give up, a call that hangs in C code hangs its caller, and nothing controls which functions run at
// the same time. With an Executor the callers wait in Go, a bounded number of them, with contexts.
//
// Waking a goroutine costs more than a short call does. Therefore a slot makes several short calls in
// one entry into Python and then delivers their results together. The callers encode their arguments
// in the meantime (interop/internal/calls). In this way 32 goroutines that call a compiled function of
// a few microseconds make more calls for less CPU time than on their own: BenchmarkNumbaCalls compares
// the two in one run.
//
// # Calls
//
// A function is named by its module and its name in the module, "models.sobel:infer". The first call
// imports it; later calls reuse it. Arguments are the values that python.Interpreter.New takes, with a
// python.Kwargs last for keywords. A *usmarray.Array, at any depth of slices and maps, becomes a
// usmbridge.Array on the same memory. Results are the values that python.Object.Value returns. Each
// array in them, of this library or another, is a *usmarray.Array on the memory of the Python object.
// The caller owns it.
//
// dpnp and dpctl may still be writing to an argument in USM when the function returns. Call waits for
// these writes before it returns, also after an exception: for all queues with which the memory was
// exported or shown. This has a cost for each writable argument with such queues. Read-only arguments
// (AsReadOnly), and arguments that only compiled functions, NumPy or Python code used, have none.
//
// With an arena (memmgr/arena) in its context, a call allocates its arrays in the arena: see package
// pymodule, Memory of a call.
//
// # Slots and the lane
//
// A slot is a goroutine that is locked to an OS thread while it is in Python. Config.Slots slots run
// all functions except those that Config.Serial names. These run on the lane, one additional slot, one
// call at a time. The lane is for libraries that fail under concurrent calls: dpnp deadlocks when several
// threads make its first calls at once, and can deadlock when one thread waits for a queue and another
// one submits work.
//
// A slot runs calls in a row if their functions took less than 25 us the last time, and less than
// 100 us together. If one of them takes longer nevertheless, the results so far are delivered, and the
// calls behind it return to the front of the queue for other slots. While a slot runs a row, the next
// short calls wait for it instead of waking another slot, because the GIL lets only one of them run.
//
// Functions take turns, so that a slow one does not hold up the others: if calls of several functions wait, the one comes
// first that has no running call and whose calls have used the least time. A call of an idle function begins when one of the
// running calls has ended. The calls of one function begin in order of arrival.
//
// More than one slot helps if Python code waits, or works in C without the GIL.
//
// # Warm-up
//
// Before any call, one slot creates Config.Modules, calls the functions of Config.Warm and runs
// Config.Steps, in this order: imports, Numba's compiler, the first call of a library that only one
// thread may make. Health reports the current step. If a step fails, the executor refuses all calls with
// its error.
//
// # Forked children
//
// A function may fork. Its child ends at the end of the function and never makes another call: see package python,
// Forked children.
//
// # Calls beside the queue
//
// CallEach calls a function on a thread of its own, beside the slots. Use it for work that lasts longer than calls may
// wait, such as loading another version of a model. Calls with different keys do not wait for each other.
//
// # Outcomes of a call
//
//   - The queue is full: ErrFull immediately, or, with Config.Wait, after waiting for a place.
//   - The context ends while the call waits for a slot or for the GIL: python.ErrNotBegun. Its place
//     becomes free.
//   - The context ends while the call runs: it is interrupted as python.Object.CallContext
//     describes, and its error reports the outcome when it ends.
//   - The call still runs Config.Grace later: the caller gets ErrStuck, and the slot counts as stuck,
//     since only the end of the process ends C code. The result is dropped. Up to Config.Spare slots
//     are replaced while they are stuck. The lane is not replaced, because its functions would then
//     run on two threads. Imports by the first call of a function and the conversion of arguments are
//     not interrupted; the caller waits for the conversion.
//   - The context never ends: the caller waits until the call ends.
//   - The function raises an exception, or Go code that it calls panics: the error of this call only,
//     together with the error of the context if that has ended. The error has the texts and classes
//     of the exception, but not the object, which could keep arguments of the call alive.
//
// Each of these errors is an *Error with the name of the function. errors.Is finds its
// Kind, the error of the context and the exception.
//
// # Health
//
// Health returns nil if a call can be expected to be served. It returns an error during the warm-up,
// after a failed step, while the lane or all slots are stuck, after Close, and when Python has ended.
// Use it for a readiness probe. Stats reports the age of the oldest running call; it shows calls
// without a deadline, which never count as stuck.
//
// # Shutdown
//
// Close refuses new calls and waits for the waiting and running ones. When its context ends, waiting
// calls are refused and running ones interrupted, and Close waits for one more Config.Grace. Threads
// of stuck calls remain; the error of Close has their number. If Python ends first, waiting calls
// return python.ErrGone.
package executor
