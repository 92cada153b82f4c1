package python

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
)

const opCallContextName = "CallContext"

// entering is held by the one call with a context whose thread waits for the GIL. That
// wait cannot be broken off, so who gives up leaves a thread behind until the GIL has
// come to it: one at most, because the others wait here.
var entering = make(chan struct{}, 1)

// CallContext is Call with a context that bounds the wait for the GIL and the run.
// When ctx ends, the Python code of the call is interrupted: the exception
// usmbridge.Interrupted, a KeyboardInterrupt, is raised in its thread, once. With an
// ended context the error is an *OpError that wraps ctx.Err(), and context.Cause where
// there is one, and says what became of the call by its Kind:
//
//   - ErrNotBegun: it was not called, and will not be
//   - ErrInterrupted: the exception ended it; errors.As finds it as *Error, whose
//     traceback says where the code was
//   - ErrNotStopped: it ran to its end after it had been asked to stop; its result is
//     dropped, its exception, if any, is wrapped
//
// A call that ends before it could be asked to stop gives its result, whatever ctx says
// by then. The exception never reaches other calls: it is put only while this one runs,
// and taken back at its end, both with the GIL held.
//
// What runs in C is not stopped: the exception is raised when the next byte code of the
// thread runs, so a NumPy or Numba function, time.sleep or a wait for a lock takes as long
// as it takes, and CallContext with it. So is Python code that catches the exception, or
// that is in a finalizer, where Python prints and drops it. What a Go function that the
// code calls swallows of it, or a CallContext in there, is raised again when that returns.
//
// The wait for the GIL ends with ctx when the calling goroutine does not hold it; then
// the call runs on another thread than a caller's that is locked to one. In With and in
// a Func, which hold the GIL already, the call is made there and then. Where Python code
// gives the GIL up and waits to have it back, that wait does not end. Go functions that
// the code calls on its thread are given ctx, if their first parameter is a context.
func (o *Object) CallContext(ctx context.Context, args ...any) (*Object, error) {
	defer runtime.KeepAlive(o)
	f := o.ptr(opCallContextName)
	c := &contextCall{ctx: ctx, f: f, args: args}
	if ctx.Err() != nil {
		return nil, c.notBegun()
	}
	if ctx.Done() == nil || opHoldsGIL() {
		return c.run()
	}
	select {
	case entering <- struct{}{}:
	case <-ctx.Done():
		return nil, c.notBegun()
	}
	ended := make(chan callResult, 1)
	go c.runApart(o, ended)
	select {
	case r := <-ended:
		return r.take()
	case <-ctx.Done():
		if c.begun.CompareAndSwap(false, true) {
			return nil, c.notBegun()
		}
		return (<-ended).take()
	}
}

// contextCall is one CallContext.
type contextCall struct {
	record callRecord // first: its address is this struct's
	ctx    context.Context
	f      ptr
	args   []any
	begun  atomic.Bool // by its thread, which has the GIL, or given up by the caller

	dropException bool // errors do not keep their exception objects
}

func (c *contextCall) interrupt() { opInterrupt(&c.record) }

func init() {
	calling.Context = currentContext
	calling.Result = func(ctx context.Context, result unsafe.Pointer) (any, error) {
		return (&contextCall{ctx: ctx, dropException: true}).result(retAt(result))
	}
	calling.DropException = func(err error) {
		var e *Error
		if errors.As(err, &e) {
			e.dropException()
		}
	}
}

// currentContext returns the context of the call that this thread is in, and
// context.Background in none. For functions that Python calls.
func currentContext() context.Context {
	r := opCurrentCall()
	if r == nil {
		return context.Background()
	}
	if n := r.fromC(); n != 0 {
		return calling.Numbered(n)
	}
	return (*contextCall)(unsafe.Pointer(r)).ctx
}

// callResult is what a thread hands back to the caller.
type callResult struct {
	o        *Object
	err      error
	panicked any
}

func (r callResult) take() (*Object, error) {
	if r.panicked != nil {
		panic(r.panicked) // misuse of an argument, on the stack of who made it
	}
	return r.o, r.err
}

// runApart runs the call on a goroutine of its own, unless the caller has gone when the
// GIL is there. It keeps the callable.
func (c *contextCall) runApart(o *Object, ended chan<- callResult) {
	var r callResult
	defer runtime.KeepAlive(o)
	defer func() {
		r.panicked = recover()
		ended <- r
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e := opEnter()
	<-entering
	if e.code != codeOK {
		r.err = e.err()
		return
	}
	defer opLeave(e.num)
	if c.begun.CompareAndSwap(false, true) {
		r.o, r.err = c.run()
	}
}

// run makes the call on this thread.
func (c *contextCall) run() (*Object, error) {
	a, err := arguments(nil, c.args)
	if err != nil {
		return nil, err
	}
	defer a.release()
	if c.ctx.Done() == nil {
		return c.result(opCallContext(&c.record, c.f, a.refs, a.npos, a.kwnames))
	}
	stop := context.AfterFunc(c.ctx, c.interrupt)
	r := opCallContext(&c.record, c.f, a.refs, a.npos, a.kwnames)
	stop()
	return c.result(r)
}

// result makes of what the call gave what the caller gets.
func (c *contextCall) result(r ret) (*Object, error) {
	switch {
	case r.code != codeOK && r.code != codeException:
		return nil, r.err()
	case r.num&callAsked != 0:
	case r.num&callStopped != 0 && c.ctx.Err() != nil: // by the interrupt of a call around this one
	case r.code == codeException:
		return nil, c.raised(r.exc)
	default:
		return own(r.val), nil
	}
	var raised error
	if r.code == codeException {
		raised = c.raised(r.exc)
	} else {
		opDecref(r.val)
	}
	kind := ErrNotStopped
	hint := "it caught the exception that was to stop it: let KeyboardInterrupt pass"
	switch {
	case r.num&callStopped != 0:
		kind, hint = ErrInterrupted, ""
	case r.num&callUnseen != 0:
		hint = "it ended before any byte code ran that the exception could be raised in: what runs in C is not stopped"
	}
	return nil, c.failed(kind, hint, raised)
}

// raised makes the error of an exception that the call raised. It takes over the object.
func (c *contextCall) raised(exc ptr) error {
	e := newError(exc)
	if c.dropException {
		e.dropException()
	}
	return e
}

func (c *contextCall) notBegun() error { return c.failed(ErrNotBegun, "", nil) }

// failed wraps the end of the context and what Python raised.
func (c *contextCall) failed(kind error, hint string, raised error) error {
	err := c.ctx.Err()
	if cause := context.Cause(c.ctx); !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	if raised != nil {
		err = fmt.Errorf("%w: %w", err, raised)
	}
	return &OpError{Op: opCallContextName, Path: "the function", Kind: kind, Err: err, Hint: hint}
}
