// Package workers runs functions of Python in processes of their own for a service
// written in Go: each process has its own interpreter, with a lock of its own, and a
// process that crashes or hangs is replaced. Arrays go there and back by handle, on the
// same memory. Linux with cgo; elsewhere New answers errors.ErrUnsupported.
//
// A [Pool] is an executor.Runner, as an executor.Executor is, and the two give the same
// errors where these mean the same, so that a service may have either.
//
// # What a worker is
//
// The program itself, started once more: no second binary is installed, whatever program
// embeds this package, and the worker has the very version of this code that its maker
// has. So main calls [Main] first, which returns at once in the program itself and never
// in a worker:
//
//	func main() {
//		workers.Main()
//		…
//
// In tests that is TestMain. A worker is marked by USMBRIDGE_WORKER in its environment, which
// Main removes. New returns an error if this program has not called Main before, because each
// worker would then run the whole program again. For the same reason New fails in package
// initialization and in a worker. A program that cannot call Main (a library in another's process)
// sets Config.Program to one that does.
//
// A worker loads the Python of its maker's choice, makes the modules of Config.Modules,
// imports, and runs the steps of the warm-up; then it serves one call at a time, always on
// the same thread, through an executor.Executor of its own. The module usmbridge is built in.
//
// # Calls
//
// They are those of package executor: a function is named "module:name"; a call takes None
// (nil), bool, integers, floats, complex numbers, strings, bytes, slices, maps, arrays
// (*usmarray.Array) anywhere in these, and a python.Kwargs last. What means something in one
// process alone (*python.Object, functions) is a *python.ConversionError, and so are structs.
// What a worker is sent in one call may take Config.MaxMessage bytes, arrays apart, and so may
// what it answers.
//
// An array in memory of package segment (segment.Default, or a pool above its resources) goes by
// handle: no byte is copied, views are views, what is read-only stays so, and what the
// function writes its caller sees at the call's end; that is how it fills memory that its caller
// made (a parameter "outputs"). An array in other memory goes by value, as a copy that the
// worker can read alone, so that a write which nobody would see fails. Results are the other way
// round: an array that the function made with interprocess=True, was given, or took from
// another worker comes by handle, any other is copied once, in the worker, into memory that
// both have. An array that came from one worker may be passed to the next, by handle while its
// maker lives, else by value. [Pool.Traffic] counts both ways and the bytes of copies.
//
// USM of an OpenCL CPU device is USM of the worker's own runtime there, of the same kind; a
// worker loads SYCL with the first such array, and has memory of the host where there is no SYCL.
// Results that are USM are USM here with Config.SYCL, else memory of the host.
//
// What the worker holds of an array's memory, in Python or for a call, it holds by a lease
// (package share): the memory returns to its pool when the worker has let it go or has ended.
// Results are valid until they are released, whatever becomes of the worker that made them.
//
// # What happens to a call
//
//   - its context ends while it waits for a worker: python.ErrNotBegun; no place among those
//     that wait: executor.ErrFull
//   - its context ends while it runs: Python's code is interrupted as by
//     python.Object.CallContext, and the error says what became of the call
//   - it still runs Config.Grace later, in C code for instance: its worker is killed, with
//     what the worker started, and replaced; the error is of kind executor.ErrStuck
//   - its worker ends in it: ErrDied, and a [Death] with the exit status and the last words:
//     the end of what the worker wrote, with Python's stacks where it crashed. Calls in
//     other workers do not notice, and those that wait do not either
//   - an exception is a *python.Error with its classes, message and traceback, but without
//     the object; what of it is longer than a message may be is cut
//   - its arguments, its result or their arrays take more than a message may: ErrTooLong, of it
//     alone
//
// A call that was written to a worker which ended before it could be read is made in another
// one, once; any other may have done something, and is never made twice.
//
// # Restarts
//
// A worker that ended is started anew: at once the first time, later after a wait that doubles
// from 0.1 to 5 s. After Config.Restarts within Config.Window it is left alone until the
// window allows another. When that is so of all, calls are refused with ErrRestarts, Health
// says so, and both tell how the last one died.
//
// [Pool.Workers] tells the state of each: what is imported or warmed up, process, calls,
// restarts, and its last death. Health is nil while Config.Least workers are ready.
//
// # The end, and nothing left behind
//
// Close lets calls come to their end and workers end as Python programs do, atexit functions
// included; what has not ended after Config.Grace is killed. A worker ends with its maker,
// however that ends: the kernel kills it then (PR_SET_PDEATHSIG), and it watches the connection
// besides. It leads a process group of its own, which is killed when it has ended, so that
// nothing that it started stays, unless it left the group; and so that Ctrl-C at a terminal
// does not reach it. SIGINT, SIGTERM and SIGHUP it passes over, because its maker decides. What a
// worker has started is not ended with it only where its maker is killed (SIGKILL) at the same
// time.
//
// Worker and maker talk over a pair of sockets without a name; handles lead to abstract
// socket names (package share). Nothing has a name in the file system, and every descriptor is
// closed on exec. A worker is trusted as far as its user is: it may do to its own process
// whatever it likes, but what it answers is checked before it is believed, and lengths are
// bounded before memory is taken for them.
//
// # What it costs
//
// On one machine with two cores a call of add(1) took 31 us in a worker where a round trip of 64
// bytes on a Unix socket took 13 us and the embedded interpreter 3 us, and one with an array of
// 1 MiB, or of any size, 72 us: handing it over is a message, opening it another, its end a third
// (BenchmarkSmallCall). In return workers run pure Python at the same time, as far as plain
// processes do: in three runs there two gained over one 0.88, 0.92 and 0.98 of what two plain Python
// processes gained over one (BenchmarkBusy, with the embedded interpreter beside them, which gains
// nothing). A worker has an interpreter, and
// what it imports, of its own in memory, and starts in some tenths of a second.
//
// # Threads
//
// A Pool has a thread on which workers are started, and for each worker three goroutines,
// which sleep.
package workers
