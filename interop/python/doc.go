// Package python embeds CPython 3.11 or newer in a Go program, through its stable
// ABI: libpython is opened at run time, so that a build needs neither Python's
// headers nor a link flag, and one binary serves all versions.
//
//	py, err := python.Start() // the Python of the active environment, once for the process
//	out, err := py.Run("y = [x * k for x in xs]", python.Vars{"xs": []int{1, 2, 3}, "k": 0.5}, "y")
//	np, err := py.Import("numpy")
//	defer np.Release()
//	a, err := np.Method("zeros", python.Tuple{2, 3}, python.Kwargs{"dtype": "float32"})
//
// # Finding and starting
//
// Find looks for a Python in USMBRIDGE_PYTHON, in the active virtual environment
// and on PATH, and runs it to locate its library. If an interpreter is linked
// statically, too old or free-threaded, the error names the reason and the package to
// install. Start loads and initialises Python once for the process. If the process
// runs Python already, Start adopts that interpreter. Main runs the python3 command
// line in a Go program. Built-in modules are registered before either
// (RegisterModule). The module usmbridge registers itself in programs that link
// interop/pymodule.
//
// # Threads and the GIL
//
// All functions and methods may be called from any goroutine. Each operation on an
// Object acquires the GIL and releases it, in one cgo call. Interpreter.With holds the
// GIL over several operations. A Go Func runs with the GIL held. Never wait for
// another goroutine with the GIL held: use WithoutGIL.
//
// Object.CallContext binds a call to a context. When the context ends, a call that has
// not begun is dropped and the Python code of a running call is interrupted. The error
// reports the outcome. C code is not interrupted; see CallContext.
//
// The thread that initialises Python is Python's main thread. A Go program's
// goroutines rarely run on it again, but Python runs signal handlers and pending calls
// (Py_AddPendingCall) only there. References that were dropped on threads without the
// GIL are therefore released by the next operation of any goroutine.
//
// # Ownership
//
// An Object owns one reference until Release, which may be called again. The arguments
// of a Func are borrowed. Use of a nil Object or of one after Release panics with a
// *UseError. If Go collects an Object that was not released, ObjectCounts counts it as
// lost, and the next operation releases its reference.
//
// # Errors
//
//   - *NotFoundError: no usable Python was found
//   - *OpError: Python cannot be used, or the context of a call ended
//   - *ConversionError: a value does not fit the type of the other language
//   - *Error: a Python exception, with class, message and traceback; errors.Is with an
//     Exception compares the class
//
// If a Go function that Python calls returns an error, an exception is raised. Its class is the
// Exception or the class of the *Error that the error wraps, such as MemoryError for
// fmt.Errorf("%w: %w", MemoryError, err); else TypeError for a *ConversionError, the class of
// Python for fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, a deadline and
// errors.ErrUnsupported; else RuntimeError. If that exception reaches Go, errors.Is and
// errors.As find the Go error. An *Error that passes through Go back to Python is
// raised as the same exception object.
//
// # Shutdown
//
// Go never finalizes the interpreter. Interpreter.Close runs the atexit functions,
// flushes the output and makes later calls fail with ErrGone. Under Main and in an
// adopted process, Python's own exit does the same. References dropped after that are
// leaked.
//
// # Forked children
//
// In a child made by fork without exec (os.fork, multiprocessing's start method "fork"), the Go
// runtime cannot run. Calls from Python into Go raise RuntimeError. When Python code that forked
// would return into Go, the child ends instead: it flushes sys.stdout and sys.stderr and exits as by
// os._exit, without functions of atexit, Go's deferred functions and destructors of C++ libraries. A
// SystemExit gives the exit status, another exception is printed and gives 1, and a return gives 0.
// If Go and Python functions call each other, the first return into Go ends the child. Python's
// threads of the child end with it: join them before. If a thread that Python started forks, the child
// ends with that thread. A Go program that forks in C code of its own gets ErrForked for calls into
// Python.
//
// Signals that the Go runtime handles have in the child the action that they had before Go started:
// the default, unless the parent of the program ignored them. So
// multiprocessing.Process.terminate ends a child although the Go program handles SIGTERM by
// signal.Notify. SIGPIPE is ignored, as in Python, so that a write to a closed pipe raises
// BrokenPipeError. Handlers that Python or C code installed stay. A crash ends the child by its
// signal, after faulthandler if that is enabled, without a report of Go.
//
// # Tests with the race detector
//
// A program built with -race that used dpnp or dpctl can crash at its exit with SIGSEGV in
// runtime.racefini, after a test has printed PASS. With the race detector, a Go program with exit
// status 0 ends by C's exit function, which runs the destructors of C++ libraries. One of dpctl's
// destructors then releases Python objects on a thread that does not hold the GIL. Calling
// Interpreter.Close before does not prevent it. Without -race, Go runs no destructors.
//
// The remedy is to end the process by syscall.Exit, which runs no destructors. In tests:
//
//	func TestMain(m *testing.M) { syscall.Exit(m.Run()) }
//
// Races still fail the tests in which they are detected. Another program that ends with
// syscall.Exit(0) still reports its races, but does not exit with status 66 because of them.
//
// # C code of other packages
//
// C files of packages that import this one include usmb_pyapi.h, which declares the
// part of CPython's stable ABI that the project uses, under CPython's own names. The
// names are macros for the members of one table of pointers, which the loader fills.
// usmb_pystate.h declares the GIL, dropped references, fork and shutdown.
// Object.Pointer and FromPointer convert between an Object and a PyObject*.
// A test checks that each C file includes only lower ones in the order from
// usmb_pyfuncs.h to usmb_pyobject.c.
//
// Without cgo and on systems other than Linux the package compiles, and every
// operation returns errors.ErrUnsupported.
package python
