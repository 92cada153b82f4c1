package python

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"unsafe"
)

var errUnsupported = fmt.Errorf("python: embedding needs Linux and cgo (%s/%s, or CGO_ENABLED=0): %w",
	runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)

// Interpreter is the CPython interpreter of the process. All methods may be called
// from any goroutine. On a nil Interpreter, methods return ErrNotStarted, or the zero
// value if they return no error.
type Interpreter struct {
	env     Environment
	adopted bool
}

type options struct{ env *Environment }

// Option is an option of Start.
type Option func(*options)

// WithEnvironment selects the Python of an Environment that Find or Inspect returned.
func WithEnvironment(env *Environment) Option {
	return func(o *options) { o.env = env }
}

var (
	startMu sync.Mutex
	current *Interpreter
)

// Start loads and initialises Python, once for the process. Further calls return the
// same Interpreter, or ErrConflict if they request another Python. If the process runs
// Python already (Go code in an extension module), that interpreter is adopted. By
// default, Start uses the Python that Find returns.
//
// Python starts as `python3` of that environment does, with its packages and the
// PYTHON* environment variables. There are three differences: Python installs no signal
// handlers, so Ctrl-C ends the program and raises no KeyboardInterrupt; Python is
// never finalized; and sys.argv is [""]. Python buffers standard output; Flush and Close write it.
//
// Before 3.14, a Python that cannot find its standard library ends the process in
// Py_InitializeEx. Find runs the interpreter with the same environment variables
// first and returns an error for such an installation.
func Start(opts ...Option) (*Interpreter, error) {
	var o options
	for _, f := range opts {
		f(&o)
	}
	startMu.Lock()
	defer startMu.Unlock()
	if current != nil {
		return current, current.agrees(&o)
	}
	if opGone() {
		return nil, fmt.Errorf("python: %w", ErrGone)
	}
	py, err := start(&o)
	if err != nil {
		return nil, err
	}
	current = py
	return py, nil
}

// agrees returns ErrConflict if the options of a further Start request another Python.
func (py *Interpreter) agrees(o *options) error {
	if opGone() {
		return fmt.Errorf("python: %w", ErrGone)
	}
	if o.env != nil && o.env.Prefix != py.env.Prefix {
		return &OpError{Op: "Start", Path: o.env.Prefix, Kind: ErrConflict,
			Err: fmt.Errorf("the running Python is that of %s", py.env.Prefix), Hint: "use one process for each Python"}
	}
	return nil
}

// Current returns the interpreter that Start started or adopted, or nil before Start.
func Current() *Interpreter {
	startMu.Lock()
	defer startMu.Unlock()
	return current
}

// Environment describes the running Python.
func (py *Interpreter) Environment() Environment {
	if py == nil {
		return Environment{}
	}
	return py.env
}

// Adopted reports whether the process ran Python before Start.
func (py *Interpreter) Adopted() bool { return py != nil && py.adopted }

// With runs f with the GIL held, on a locked OS thread. Operations on Objects acquire
// the GIL themselves. Use With to hold it over many operations, which is faster, or to
// keep other threads out of Python between them. Python code that f runs may still
// release the GIL between byte codes, and functions of this module release it while they
// wait for work on a device or for memory. Calls of With nest. Inside f, do not wait for a
// goroutine that needs Python; use WithoutGIL. With returns the error of f, or
// ErrNotStarted, ErrGone or ErrForked if Python cannot be entered. If f panics, the
// GIL is released.
func (py *Interpreter) With(f func() error) error {
	if err := py.check(); err != nil {
		return err
	}
	return with(f)
}

// check returns ErrNotStarted for a nil Interpreter.
func (py *Interpreter) check() error {
	if py == nil {
		return fmt.Errorf("python: nil *Interpreter: %w", ErrNotStarted)
	}
	return nil
}

func with(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := opEnter()
	if r.code != codeOK {
		return r.err()
	}
	defer opLeave(r.num)
	return f()
}

// WithoutGIL runs f with the GIL released, inside With or a Func. Use it to wait for a
// device, a channel or another goroutine. f may call With. If this thread does not
// hold the GIL, WithoutGIL only runs f.
func (py *Interpreter) WithoutGIL(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ts := opSuspend()
	defer opResume(ts)
	f()
}

// Flush flushes Python's sys.stdout and sys.stderr.
func (py *Interpreter) Flush() error {
	return py.run("<flush>", `import sys
for stream in (sys.stdout, sys.stderr):
    if stream is not None and not stream.closed:
        stream.flush()
`)
}

// Close ends the use of Python. It flushes the output, runs the functions registered
// with atexit and releases dropped references. Every later call fails with ErrGone.
// The interpreter is not finalized, because other threads and libraries may still use
// it, and it cannot be started again in this process. A second Close does nothing. On
// an adopted interpreter Close does nothing, because Python's own exit closes it.
func (py *Interpreter) Close() error {
	if err := py.check(); err != nil {
		return err
	}
	if py.adopted || opGone() {
		return nil
	}
	err := py.Flush()
	// These functions include exit_hook of usmb_pystate.c. It was registered first,
	// so it runs last.
	return errors.Join(err, py.run("<close>", "import atexit; atexit._run_exitfuncs()"))
}

// run executes internal code in a new namespace.
func (py *Interpreter) run(filename, code string) error {
	_, err := py.exec(filename, code, nil, nil)
	return err
}

// RegisterModule adds a built-in module to the interpreter that Start or Main will
// start. init is the address of its C function PyInit_name, which must stay valid. The
// error is ErrConflict if the name is registered with another function or if Python is
// initialised already.
func RegisterModule(name string, init unsafe.Pointer) error {
	if name == "" || init == nil {
		return &OpError{Op: "RegisterModule", Path: strconv.Quote(name), Err: errors.New("needs a name and a function")}
	}
	return addModule(name, init)
}

// Main runs Python's command line with args (without the program name) and ends the
// process with Python's exit status. It behaves as the python3 of that environment:
// signals, -m, -c, -i, scripts, standard input. It returns only if Python cannot be
// started. It must be called on the process's main thread: call runtime.LockOSThread
// in an init function, and Main from main.
//
// host is the path of this program (os.Executable). After the import of a module of
// RegisterModule, multiprocessing starts its children with host, because the
// environment's own python lacks these modules. sys.executable still names the
// environment's python, because pip, venv and the package search depend on it.
func Main(env *Environment, args []string, host string) error {
	startMu.Lock()
	started := current != nil
	startMu.Unlock()
	if env == nil {
		return &OpError{Op: "Main", Path: "nil", Err: errors.New("needs the Environment of Find or Inspect")}
	}
	if started {
		return &OpError{Op: "Main", Path: "this process", Kind: ErrConflict}
	}
	return runMain(env, args, host)
}
