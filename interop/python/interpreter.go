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

// Interpreter is the one CPython of the process. All methods may be called from any
// goroutine. Those of a nil one return ErrNotStarted, or the zero value where they
// return no error.
type Interpreter struct {
	env     Environment
	adopted bool
}

// options of Start.
type options struct {
	env     *Environment
	args    []string
	hasArgs bool
}

// Option changes what Start does.
type Option func(*options)

// WithEnvironment starts the Python that Find or Inspect described.
func WithEnvironment(env *Environment) Option {
	return func(o *options) { o.env = env }
}

// WithArgs sets sys.argv. Without it sys.argv is [""].
func WithArgs(argv ...string) Option {
	return func(o *options) { o.args, o.hasArgs = argv, true }
}

var (
	startMu sync.Mutex
	current *Interpreter
)

// Start loads and initialises Python, once for the process: further calls return
// the same Interpreter, or ErrConflict when they ask for another Python. Where the
// process is Python already (Go code in an extension module), that interpreter is
// adopted. Without options the Python is the one of Find.
//
// Python starts as `python3` of that environment would, with its packages and with
// what PYTHON* variables say, but it installs no signal handlers (Go keeps its own,
// so Ctrl-C ends the program and raises no KeyboardInterrupt), and it is never
// finalized. Standard output is buffered by Python: Flush or Close writes it out.
//
// A Python that cannot find its own standard library ends the process inside
// Py_InitializeEx before 3.14; Find has run the interpreter before that, in the same
// surroundings, and reports such an installation as an error.
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
	current = py // whatever becomes of its arguments: it runs
	if o.hasArgs {
		if err := py.setArgs(o.args); err != nil {
			return nil, err
		}
	}
	return py, nil
}

// agrees checks that options of a further Start ask for what is there.
func (py *Interpreter) agrees(o *options) error {
	if opGone() {
		return fmt.Errorf("python: %w", ErrGone)
	}
	if o.env != nil && o.env.Prefix != py.env.Prefix {
		return &OpError{Op: "Start", Path: o.env.Prefix, Kind: ErrConflict,
			Err: fmt.Errorf("running is the one of %s", py.env.Prefix), Hint: "use a process for each"}
	}
	if o.hasArgs {
		return py.setArgs(o.args)
	}
	return nil
}

func (py *Interpreter) setArgs(args []string) error {
	argv, err := convert(args)
	if err != nil {
		return err
	}
	defer opDecref(argv)
	return opSysSet("argv", argv).err()
}

// Current returns the interpreter that Start started or adopted, or nil.
func Current() *Interpreter {
	startMu.Lock()
	defer startMu.Unlock()
	return current
}

// Environment describes the Python that runs.
func (py *Interpreter) Environment() Environment {
	if py == nil {
		return Environment{}
	}
	return py.env
}

// Adopted reports whether the process was Python before Go code was loaded into it.
func (py *Interpreter) Adopted() bool { return py != nil && py.adopted }

// With runs f with the GIL held, on a locked OS thread. Operations on Objects take
// the GIL by themselves; With is for doing many of them at a stretch, which spares
// the hand-over of the lock between them, and for sequences that no other thread
// may interrupt (as far as Python itself does not: it lets others run between
// byte codes). It nests. Inside, do not wait for a goroutine that needs Python:
// WithoutGIL is for that. The error is f's, or why Python cannot be entered:
// ErrNotStarted, ErrGone, ErrForked. A panic of f passes through, the GIL released.
func (py *Interpreter) With(f func() error) error {
	if err := py.there(); err != nil {
		return err
	}
	return with(f)
}

// there is what every method asks that returns an error.
func (py *Interpreter) there() error {
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

// WithoutGIL runs f with the GIL given up, inside a With or a Func: for waiting on a
// device, a channel or another goroutine. f may call With again. Where the GIL is
// not held it just runs f.
func (py *Interpreter) WithoutGIL(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ts := opSuspend()
	defer opResume(ts)
	f()
}

// Flush writes out what Python's sys.stdout and sys.stderr hold back.
func (py *Interpreter) Flush() error {
	return py.run("<flush>", `import sys
for stream in (sys.stdout, sys.stderr):
    if stream is not None and not stream.closed:
        stream.flush()
`)
}

// Close ends the use of Python: functions registered with atexit run, output is
// flushed, references dropped so far are given up, and every later call is refused
// with ErrGone. The interpreter itself is not finalized, since other threads and
// libraries may still be in it, and cannot be started again in this process.
// Closing twice does nothing. An adopted interpreter is left alone: its own exit
// closes it.
func (py *Interpreter) Close() error {
	if err := py.there(); err != nil {
		return err
	}
	if py.adopted || opGone() {
		return nil
	}
	err := py.Flush()
	// The hook that marks Python as gone is among these and runs last.
	return errors.Join(err, py.run("<close>", "import atexit; atexit._run_exitfuncs()"))
}

// run executes internal code in a namespace of its own.
func (py *Interpreter) run(filename, code string) error {
	_, err := py.exec(filename, code, nil, nil)
	return err
}

// RegisterModule makes a module built in to the interpreter that Start or Main will
// start: init is the address of its C function PyInit_name, which must stay valid.
// ErrConflict when the name is taken by another function or Python is initialised
// already.
func RegisterModule(name string, init unsafe.Pointer) error {
	if name == "" || init == nil {
		return &OpError{Op: "RegisterModule", Path: strconv.Quote(name), Err: errors.New("needs a name and a function")}
	}
	return addModule(name, init)
}

// Main runs Python's command line with these arguments (args[0] is not among them)
// and ends the process with Python's exit status, as the program python3 of that
// environment would: signals, -m, -c, -i, scripts, standard input. It returns only
// if Python could not be started. It must be called on the process's main thread:
// call runtime.LockOSThread in an init function, and Main from main.
//
// host is the path of this program (os.Executable): children that multiprocessing
// spawns run it once a module of RegisterModule was imported, since the
// environment's plain python lacks those modules. sys.executable names the
// environment's python all the same, because pip, venv and the finding of packages
// go by it.
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
