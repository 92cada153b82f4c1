package python

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strings"
)

// Exception is the name of a Python exception class, "ValueError" or "package.Class".
// It implements error for two uses. errors.Is(err, python.KeyError) reports whether a
// Python error is of that class or of a derived class. A Go function that Python calls
// raises that class by returning an error that wraps it.
type Exception string

// Error returns the name of the class.
func (e Exception) Error() string { return string(e) }

// Built-in exception classes.
const (
	AttributeError      = Exception("AttributeError")
	BufferError         = Exception("BufferError")
	ImportError         = Exception("ImportError")
	IndexError          = Exception("IndexError")
	KeyError            = Exception("KeyError")
	KeyboardInterrupt   = Exception("KeyboardInterrupt")
	LookupError         = Exception("LookupError")
	MemoryError         = Exception("MemoryError")
	ModuleNotFoundError = Exception("ModuleNotFoundError")
	NotImplementedError = Exception("NotImplementedError")
	OSError             = Exception("OSError")
	OverflowError       = Exception("OverflowError")
	RuntimeError        = Exception("RuntimeError")
	SyntaxError         = Exception("SyntaxError")
	SystemExit          = Exception("SystemExit")
	TypeError           = Exception("TypeError")
	ValueError          = Exception("ValueError")
)

// Error is a Python exception as a Go error (errors.As). It keeps the exception object with its
// causes and contexts. So that an error does not keep the arrays of the failed call alive, the
// local variables of the frames in their tracebacks and the attribute obj of an AttributeError
// are cleared after the texts have been taken. Arguments of the exception stay. Exceptions that
// Python code around the call is handling are not cleared.
type Error struct {
	Type      string   // class: "ValueError", "numpy.exceptions.AxisError"
	Message   string   // str() of the exception
	Traceback string   // as Python prints it, with causes and contexts
	Classes   []string // the names of the class and of its bases, which Is compares

	exc   *Object
	goErr error // the Go error that was raised as this exception
}

// Error returns "python: ValueError: message".
func (e *Error) Error() string {
	if e.Message == "" {
		return "python: " + e.Type
	}
	return "python: " + e.Type + ": " + e.Message
}

// Is reports whether target is an Exception that names the class or one of its bases.
func (e *Error) Is(target error) bool {
	x, ok := target.(Exception)
	return ok && slices.Contains(e.Classes, string(x))
}

// Unwrap returns the Go error that was raised as this exception, or nil.
func (e *Error) Unwrap() error { return e.goErr }

// Exception returns the exception object, borrowed from e. It is nil for an error that was raised
// in another process, and for one of package executor.
func (e *Error) Exception() *Object { return e.exc }

// newError returns the error of an exception object, which it takes over.
func newError(exc ptr) *Error {
	e := &Error{
		Type:      opErrorPart(exc, partType),
		Message:   opErrorPart(exc, partMessage),
		Traceback: opErrorPart(exc, partTraceback),
		Classes:   strings.Split(opErrorPart(exc, partLineage), "\n"),
	}
	opDetachError(exc)
	if r := opErrorHandle(exc); r.code == codeOK && r.num != 0 {
		e.goErr, _ = handleValue(uintptr(r.num)).(error)
	}
	e.exc = ownUncounted(exc)
	return e
}

// dropException releases the exception object immediately instead of when Go collects e. The
// caller must be the only user of e.
func (e *Error) dropException() {
	if e.exc == nil {
		return
	}
	if p := e.exc.p.Swap(nil); p != nil {
		e.exc.cleanup.Stop()
		opDecref(ptr(p))
	}
	e.exc = nil
}

// exceptionFor returns the exception class for a Go error, as the package comment describes.
func exceptionFor(err error) Exception {
	var (
		x  Exception
		pe *Error
		ce *ConversionError
		oe *OpError
	)
	switch {
	case errors.As(err, &x):
		return x
	case errors.As(err, &oe) && oe.Op == opCallContextName:
		// Not the class of the *Error: an interrupt must not interrupt the enclosing call.
		if errors.Is(err, context.DeadlineExceeded) {
			return "TimeoutError"
		}
		return RuntimeError
	case errors.As(err, &pe):
		return Exception(pe.Type)
	case errors.As(err, &ce):
		return TypeError
	case errors.Is(err, fs.ErrNotExist):
		return "FileNotFoundError"
	case errors.Is(err, fs.ErrExist):
		return "FileExistsError"
	case errors.Is(err, fs.ErrPermission):
		return "PermissionError"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "TimeoutError"
	case errors.Is(err, errors.ErrUnsupported):
		return NotImplementedError
	}
	return RuntimeError
}

// exceptionOf returns a new reference to the exception object of a Go error. If err is
// an *Error, it is the original object. Otherwise it is a new object of the class that
// exceptionFor returns, with the message of err. Its cause is the exception of the
// *Error that err wraps, if any.
func exceptionOf(err error) (ptr, error) {
	if e, ok := err.(*Error); ok && e.exc != nil { //nolint:errorlint // err itself, not one that it wraps
		return e.exc.newReference("Retain")
	}
	var cause ptr
	var e *Error
	if errors.As(err, &e) && e.exc != nil {
		cause = e.exc.ptr("Retain")
	}
	return newException(exceptionFor(err), err.Error(), err, cause)
}

// newException returns a new exception object that refers to err.
func newException(class Exception, text string, err error, cause ptr) (ptr, error) {
	h := newHandle(err)
	r := opNewError(string(class), text, h, cause)
	if r.code != codeOK && r.code != codeException {
		freeHandle(h) // never reached C's owner of the handle
	}
	return r.take()
}

// Raise sets Python's error indicator from a Go error, before a function called by
// Python returns NULL. The caller holds the GIL. An *Error is raised as the same
// exception object, other errors as the package comment describes.
func Raise(err error) {
	exc, e := raisable(err)
	if e != nil {
		exc, e = raisable(fmt.Errorf("%w: %s", RuntimeError, err.Error()))
	}
	if e != nil {
		return // no interpreter to raise it in
	}
	opRaise(exc)
	opDecref(exc)
}

// raisable is exceptionOf for callers that must not panic. If a method of the error
// panics, it returns an exception of that panic.
func raisable(err error) (exc ptr, e error) {
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{Value: v, Stack: string(debug.Stack())}
			exc, e = newException(RuntimeError, p.Error(), p, nil)
		}
	}()
	return exceptionOf(err)
}
