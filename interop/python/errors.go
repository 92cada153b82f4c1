package python

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Reasons, to be tested with errors.Is, why no Python can be used or a call was
// refused.
var (
	// ErrNotFound: no usable Python was found. The error is a *NotFoundError.
	ErrNotFound = errors.New("no usable Python found")
	// ErrNoLibrary: the interpreter is linked statically and no libpython of its
	// version lies where it says its libraries are.
	ErrNoLibrary = errors.New("this Python has no shared libpython")
	// ErrTooOld: older than MinVersion.
	ErrTooOld = errors.New("this Python is too old")
	// ErrFreeThreaded: a free-threaded build ("python3.13t"): it has no stable ABI.
	ErrFreeThreaded = errors.New("this Python is a free-threaded build, which has no stable ABI")
	// ErrNotCPython: another implementation of the language.
	ErrNotCPython = errors.New("this Python is not CPython")
	// ErrConflict: the process holds another Python than the one asked for, or it
	// is initialised already and cannot take the option any more.
	ErrConflict = errors.New("this process already runs Python")
	// ErrNotStarted: there is no running interpreter.
	ErrNotStarted = errors.New("Python is not started; call python.Start")
	// ErrGone: the interpreter has ended (Interpreter.Close, or Python's own exit).
	ErrGone = errors.New("Python has ended in this process")
	// ErrForked: the process is a child made by fork without exec, in which the Go
	// runtime has no threads. Start children with "spawn" instead.
	ErrForked = errors.New("Go cannot be entered in a forked child; use the spawn start method")
)

// What became of a CallContext whose context ended; the Kind of its *OpError.
var (
	// ErrNotBegun: the context ended before the call began. No Python code of it has
	// run, and none will.
	ErrNotBegun = errors.New("its context ended before it began")
	// ErrInterrupted: the call was stopped by the exception that was raised in it. What
	// it did before is done.
	ErrInterrupted = errors.New("it was interrupted because its context ended")
	// ErrNotStopped: the call went on to its end when its context had ended: it was in C
	// code until then, or its Python code caught the exception.
	ErrNotStopped = errors.New("its context ended, and it ran to its end all the same")
)

// OpError is a Python that cannot be used, or a call that its context ended: what was
// done with what, the reason and, where there is one, the remedy.
type OpError struct {
	Op   string // "Inspect", "Start", "Main", "RegisterModule" or "CallContext"
	Path string // the interpreter, libpython or module, "this process" for what is there; what was called
	Kind error  // one of the Err… sentinels, or nil
	Err  error  // what was found, or nil
	Hint string // what to install or set, or empty
}

// Error names the operation, the file, the reason and the remedy.
func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString("python: " + e.Op + ": " + e.Path)
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			b.WriteString(": " + err.Error())
		}
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Unwrap returns Kind and Err.
func (e *OpError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Err}, func(err error) bool { return err == nil })
}

// UseError is what a misused Object panics with: nil, after Release, or an argument
// of a callback after that returned.
type UseError struct {
	Op     string // the method
	Reason string
}

// Error says what was used and why it cannot be.
func (e *UseError) Error() string { return "python: Object." + e.Op + ": " + e.Reason }

// Attempt is one interpreter that Find looked at.
type Attempt struct {
	Source     string // "USMBRIDGE_PYTHON", "VIRTUAL_ENV" or "PATH"
	Executable string // what was run
	Err        error  // why it was passed over; nil for the one chosen
}

// NotFoundError lists what Find tried. errors.Is sees ErrNotFound and the reason
// of each attempt.
type NotFoundError struct {
	Tried []Attempt
	Off   bool // USMBRIDGE_PYTHON says "off"
}

// Error lists the attempts with their reasons.
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

// Unwrap returns ErrNotFound and the reasons of all attempts.
func (e *NotFoundError) Unwrap() []error {
	errs := []error{ErrNotFound}
	for _, t := range e.Tried {
		errs = append(errs, t.Err)
	}
	return errs
}
