// Package python embeds CPython 3.11 or newer in a Go program, through its stable
// ABI: libpython is opened at run time, so that a build needs neither Python's
// headers nor a link flag, and one binary serves all versions.
//
// # Finding and starting
//
// Find looks for a Python in USMBRIDGE_PYTHON, in the active virtual environment
// and on PATH, and asks it for its library; a static interpreter without libpython,
// one too old and a free-threaded build are told apart and named, with what to
// install. Start loads and initialises it once for the process; where the process
// is Python already, that interpreter is adopted. Main is the python3 command line
// hosted by Go. Built-in modules are registered before either (RegisterModule); the
// module usmbridge registers itself in programs that link interop/pymodule.
//
// # Threads and the GIL
//
// Everything may be called from any goroutine. Each operation on an Object takes
// the GIL, does its work on one thread and gives the GIL up, in one cgo call;
// Interpreter.With holds it over several. Python calling a Go Func holds it
// already. Never wait for another goroutine with the GIL held: WithoutGIL is for
// that.
//
// Object.CallContext is a call that ends with a context: one that has not begun is
// dropped, the Python code of one that runs is interrupted, and the error says which it
// was. C code is not interrupted; the page of the method says what that means.
//
// The thread that initialises is Python's main thread; a Go program's goroutines
// rarely run on it again. Signal handlers and pending calls of Python
// (Py_AddPendingCall) run only there, so in an embedding program references that
// were dropped on threads without the GIL are given up by the next operation of any
// goroutine instead.
//
// # Ownership
//
// An Object owns one reference until Release, which may be called again; the arguments
// of a Func are borrowed. Use after Release, and of a nil Object, panics with a
// *UseError. A forgotten Object is counted (ObjectCounts), and its reference is given
// up by the next operation after Go collected it: never by a garbage collector's
// goroutine itself.
//
// # Errors
//
// A Python that cannot be found is a *NotFoundError, one that cannot be used an
// *OpError, a value that does not fit the other language a *ConversionError. A Python
// exception is an *Error with class, message and traceback; errors.Is with an
// Exception tells the class. A Go function that Python calls raises the class that
// its error wraps (MapError); the Go error comes back out of Python by errors.Is and
// errors.As, and a Python exception that passes through Go is raised again as the
// same object.
//
// # The end
//
// Go never finalizes the interpreter. Interpreter.Close runs the atexit functions,
// flushes, and refuses later calls with ErrGone, as Python's own exit does under
// Main or in an adopted process; references dropped after that are leaked, since
// there is nobody left to take them. In a child made by fork without exec, calls
// into Go raise RuntimeError and calls from Go return ErrForked.
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
// # Python behind C code
//
// C files of packages that import this one include usmb_pyapi.h: the part of CPython's
// stable ABI that the project uses, under CPython's own names. The names are macros for
// the members of one table of pointers, which the loader fills. They also include
// usmb_pystate.h: drains of dropped references, fork, Python's end.
// Object.Pointer takes an Object to C, FromPointer brings one back.
// The files stand in floors, from usmb_pyfuncs.h up to usmb_pyobject.c; a test holds
// the order.
//
// Without cgo and on systems other than Linux the package compiles, and everything
// answers errors.ErrUnsupported.
package python
