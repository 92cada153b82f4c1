package python

import (
	"errors"
	"fmt"
	"strings"

	"github.com/usmbridge/usmbridge/internal/operr"
)

// Reasons why Python cannot be used, for errors.Is.
var (
	// ErrNotFound is returned, in a *NotFoundError, if no usable Python was found.
	ErrNotFound = errors.New("no usable Python found")
	// ErrNoLibrary is returned if the interpreter is linked statically and its library
	// directories have no libpython of its version.
	ErrNoLibrary = errors.New("this Python has no shared libpython")
	// ErrTooOld is returned for a Python older than MinVersion.
	ErrTooOld = errors.New("this Python is too old")
	// ErrFreeThreaded is returned for a free-threaded build ("python3.13t"), which has no stable ABI.
	ErrFreeThreaded = errors.New("this Python is a free-threaded build, which has no stable ABI")
	// ErrNotCPython is returned for another implementation of the language.
	ErrNotCPython = errors.New("this Python is not CPython")
	// ErrConflict is returned if the process runs another Python than the requested one, or if
	// Python is initialized already and the option has no effect any more.
	ErrConflict = errors.New("this process already runs Python")
	// ErrNotStarted is returned if no interpreter runs.
	ErrNotStarted = errors.New("Python is not started; call python.Start")
	// ErrGone is returned after the end of the interpreter (Interpreter.Close, or Python's own exit).
	ErrGone = errors.New("Python has ended in this process")
	// ErrForked is returned in a child made by fork without exec, in which the Go runtime has no
	// threads. A child that Python code forked ends before it returns into Go, so only one that C code
	// forked sees this error. Start children with "spawn" instead.
	ErrForked = errors.New("Go cannot be entered in a forked child; use the spawn start method")
)

// Outcomes of a CallContext whose context ended: the Kind of its *OpError.
var (
	// ErrNotBegun: the context ended before the call began. The function was not called and will not
	// be.
	ErrNotBegun = errors.New("its context ended before it began")
	// ErrInterrupted: the exception raised in the call ended it. Its effects until then remain.
	ErrInterrupted = errors.New("it was interrupted because its context ended")
	// ErrNotStopped: the call ran to completion although its context had ended: it was in C code
	// until then, or its Python code caught the exception.
	ErrNotStopped = errors.New("its context ended, but it ran to completion")
)

// OpError is returned if Python cannot be used, or for a call whose context ended. It names the
// operation, its object, the reason and, if known, the remedy.
type OpError struct {
	Op   string // "Inspect", "Start", "Main", "RegisterModule" or "CallContext"
	Path string // the interpreter, library, module or function; "this process" for a Python in it
	Kind error  // one of the Err… sentinels, or nil
	Err  error  // the cause, or nil
	Hint string // an instruction, or empty
}

// Error names the operation, the file, the reason and the remedy.
func (e *OpError) Error() string {
	s := operr.Text("python: "+e.Op+": "+e.Path, e.Kind, e.Err)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap returns Kind and Err.
func (e *OpError) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

// UseError is the value of the panic when an Object is misused: a nil Object, one after Release, or
// an argument of a Func after the Func returned.
type UseError struct {
	Op  string // the method
	Err error  // the problem
}

// Error returns "python: Object.Op: Err".
func (e *UseError) Error() string { return "python: Object." + e.Op + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *UseError) Unwrap() error { return e.Err }

var (
	errNilObject      = errors.New("the *Object is nil")
	errReleasedObject = errors.New("the *Object is released, or is an argument of a call that has returned")
)

// Attempt is one interpreter that Find examined.
type Attempt struct {
	Source     string // "USMBRIDGE_PYTHON", "VIRTUAL_ENV" or "PATH"
	Executable string // the path that was run
	Err        error  // why it cannot be used; nil for the chosen one
}

// NotFoundError lists the interpreters that Find examined. It wraps ErrNotFound and the
// error of each attempt.
type NotFoundError struct {
	Tried []Attempt
	Off   bool // USMBRIDGE_PYTHON is "off"
}

// Error lists the attempts and their errors.
func (e *NotFoundError) Error() string {
	if e.Off {
		return "python: no usable Python found: " + EnvVar + " is \"off\"; unset it, or name an interpreter there"
	}
	if len(e.Tried) == 0 {
		return "python: no usable Python found: there is no python3 on PATH, and neither " +
			"USMBRIDGE_PYTHON nor VIRTUAL_ENV is set; install Python 3.11 or newer with its shared " +
			"library (Debian, Ubuntu: apt install python3-venv libpython3-dev), or name one in USMBRIDGE_PYTHON"
	}
	var b strings.Builder
	b.WriteString("python: no usable Python found:")
	for _, t := range e.Tried {
		fmt.Fprintf(&b, "\n  from %s: %s", t.Source, strings.TrimPrefix(t.Err.Error(), "python: "))
	}
	return b.String()
}

// Unwrap returns ErrNotFound and the errors of all attempts.
func (e *NotFoundError) Unwrap() []error {
	errs := []error{ErrNotFound}
	for _, t := range e.Tried {
		errs = append(errs, t.Err)
	}
	return errs
}
