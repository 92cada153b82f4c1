// Package workers runs Python functions in separate processes for a service written in Go. Each
// process has its own interpreter with its own lock, and a process that crashes or hangs is
// replaced. Arrays travel in both directions by handle, on the same memory. The package needs Linux
// and cgo; elsewhere New returns errors.ErrUnsupported.
//
//	func main() {
//		workers.Main() // first: never returns in a worker
//		pool, err := workers.New(workers.Config{Workers: 2, Path: []string{"models"}})
//		defer pool.Close(ctx)
//		x, err := usmarray.Zeros(memory, usmarray.Float32, []int{480, 640}) // memory of segment.Default
//		result, err := pool.Call(ctx, "sobel:infer", x)
//
// A [Pool] is an executor.Runner, as an executor.Executor is. Both return the same errors for the
// same failures, so that a service can use either.
//
// # Worker processes
//
// A worker is the program itself, started once more. No second binary is installed, and the worker
// runs the same version of this code as its maker. Therefore main calls [Main] first, which returns
// immediately in the program itself. In tests, TestMain calls it. The environment variable
// USMBRIDGE_WORKER marks a worker; Main removes it. New returns an error if this program has not
// called Main before, because each worker would then run the whole program again. For the same
// reason New fails during package initialization and in a worker. A program that cannot call Main,
// such as a library in another program, sets Config.Program to one that does.
//
// A worker loads the same Python as its maker, creates the modules of Config.Modules, imports, and
// runs the warm-up steps. Then it serves one call at a time through its own executor.Executor: one
// goroutine reads a call, makes it and writes the answer, so that a call wakes one thread. The module
// usmbridge is built in.
//
// # Calls
//
// Calls are those of package executor: a function is named "module:name". Arguments are None (nil),
// bool, integers, floats, complex numbers, strings, bytes, slices and maps, arrays
// (*usmarray.Array) at any depth, and a python.Kwargs last. A value that is valid in one process only
// (*python.Object, functions) is a *python.ConversionError; so are structs. The values of a call may
// have Config.MaxMessage bytes, without the arrays, and so may those of its result. A number takes 16
// bytes, a text at least 16, and each container 8 bytes besides its elements.
//
// An array in memory of package segment (segment.Default, or a pool above its resources) travels by
// handle. No byte is copied, views stay views, and read-only arrays stay read-only. The caller sees
// what the function has written when the call ends; so a function fills memory of its caller (a
// parameter "outputs"). An array in other memory travels by value, as a copy that is read-only in the
// worker: a write would be lost, so it fails. In a worker, new arrays of usmbridge are in memory that
// other processes can map, as with interprocess=True, unless the device cannot share memory. So results
// made of them, or of arguments, travel by handle. Any other array, such as one of NumPy, is copied
// once, in the worker, into memory that both processes map. An array of one worker can be passed to the
// next: by handle while its maker lives, else by value. [Pool.Traffic] counts both ways and the copied
// bytes.
//
// USM of an OpenCL CPU device is USM of the worker's own runtime, of the same kind. A worker loads
// SYCL with the first such array; without SYCL it uses host memory. Results in USM are USM in the
// maker with Config.SYCL, else host memory.
//
// Config.Memory bounds the arrays that usmbridge makes in a worker. Without it, a call may take any memory.
//
// A worker holds the memory of an array by a lease (package share). The memory returns to its pool
// when the worker has released it or has ended. Results are valid until they are released, even if
// the worker that made them has ended.
//
// Functions take turns if calls wait for a worker, as in package executor.
//
// # Outcomes of a call
//
//   - The context ends while the call waits for a worker: python.ErrNotBegun. The queue is full:
//     executor.ErrFull.
//   - The context ends while the call runs: its Python code is interrupted as by
//     python.Object.CallContext, and the error reports the outcome.
//   - The call still runs Config.Grace later, in C code for instance: the worker and the processes
//     that it started are killed, and the worker is replaced. The error is of kind
//     executor.ErrStuck.
//   - The worker ends during the call: ErrDied, and a [Death] with the exit status and the last
//     output, which includes Python's stacks after a crash. Calls in other workers and waiting calls
//     are not affected.
//   - The function raises an exception: a *python.Error with classes, message and traceback, but
//     without the object. Texts that exceed a message are cut.
//   - The arguments, the result or their arrays exceed a message: ErrTooLong, of this call only.
//
// If a worker ended before it could read a call, the call is made once more in another worker. No
// other call is repeated, because it may have had effects.
//
// # Calls in every worker
//
// [Pool.CallEach] changes the state of all workers while they serve calls: it loads another version of a model, for
// example. The function runs on a thread of its own, so a slow one delays no call. A worker that is restarted repeats the
// calls that made the state of the others.
//
// # Restarts and shutdown
//
// A worker that ended is restarted, as Config.Restarts describes. [Pool.Workers] reports the state of
// each worker: the current import or warm-up step, process, calls, restarts and last death. Health
// returns nil while at least Config.Least workers are ready.
//
// [Pool.Close] waits for running calls and ends the workers. A worker also ends with its maker, however
// that ends: the kernel kills it (PR_SET_PDEATHSIG), and it watches its connection. A worker leads its
// own process group. The group is killed when the worker has ended, so the processes that the worker
// started end too, unless they left the group; and Ctrl-C at a terminal does not reach it. A worker
// ignores SIGINT, SIGTERM and SIGHUP, because its maker decides. Processes that it starts do not, forked
// children included. A child that a function forks ends at the end of the function, and the worker goes on: see package
// python, Forked children. Processes that a worker started survive
// only if the maker is killed (SIGKILL) at the same time as the worker.
//
// # Thread safety and resources
//
// All methods of a Pool are safe for concurrent use. A Pool has one thread that starts workers, and
// four sleeping goroutines for each worker. Each worker has an interpreter and its imports in memory.
// Workers run pure Python in parallel, which threads of one interpreter cannot (BenchmarkBusy); a call
// costs more than one in the embedded interpreter (BenchmarkSmallCall).
//
// # Security
//
// Worker and maker communicate over two unnamed pairs of sockets, one for calls and one to interrupt
// them. Handles refer to abstract socket names (package share). No file is created, and each descriptor
// is closed on exec. A worker has the rights of its user and can do anything to its own process. Its
// answers are checked before they are used, lengths are checked before memory is allocated for them,
// and addresses in them are refused.
package workers
