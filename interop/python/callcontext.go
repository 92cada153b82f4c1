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

// entering is held by the call with a context whose thread waits for the GIL. That wait
// cannot be cancelled, so a caller that gives up leaves the thread waiting. The channel
// limits these threads to one; other calls wait for the channel.
var entering = make(chan struct{}, 1)

// CallContext is Call with a context that bounds the wait for the GIL and the run.
// When ctx ends, the Python code of the call is interrupted: the exception
// usmbridge.Interrupted, a KeyboardInterrupt, is raised in its thread, once. The error is
// then an *OpError that wraps ctx.Err(), and context.Cause if there is one. Its Kind
// reports the outcome:
//
//   - ErrNotBegun: the function was not called, and will not be
//   - ErrInterrupted: the exception ended the call; errors.As finds it as an *Error, whose
//     traceback shows the position of the code
//   - ErrNotStopped: the call ran to completion after the interrupt; its result is
//     dropped, its exception, if any, is wrapped
//
// A call that ends before the interrupt returns its result, even if ctx has ended. The
// exception never reaches other calls: it is set only while this one runs, and removed at
// its end, both with the GIL held.
//
// C code is not stopped. The exception is raised when the thread executes the next byte
// code, so CallContext waits for a NumPy or Numba function, time.sleep or a lock to
// return. Code that catches the exception is not stopped either, nor is a finalizer, in
// which Python prints and drops exceptions. If a Go function that the code calls, or a
// CallContext inside it, discards the exception, it is raised again when the function
// returns.
//
// If the calling goroutine does not hold the GIL, the end of ctx also ends the wait for
// the GIL; the call then runs on another thread, even if the goroutine is locked to one.
// In With and in a Func, which hold the GIL, the call is made on the same thread. If Python code
// releases the GIL and waits to acquire it again, that wait does not end with ctx. Go functions
// that the code calls on its thread receive ctx if their first parameter is a context.
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
	begun  atomic.Bool // set by its thread, with the GIL, or by a caller that gives up

	dropException bool // release the exception objects of errors
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

// currentContext returns the context of the innermost call on this thread, or context.Background
// without one. It is for functions that Python calls.
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

// callResult is the outcome that a thread returns to the caller.
type callResult struct {
	o        *Object
	err      error
	panicked any
}

func (r callResult) take() (*Object, error) {
	if r.panicked != nil {
		panic(r.panicked) // misuse of an argument: panic on the stack of the caller
	}
	return r.o, r.err
}

// runApart runs the call on its own goroutine, unless the caller has given up when the GIL is
// acquired. It keeps the callable alive.
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

// result converts the result of the call, considering an interrupt.
func (c *contextCall) result(r ret) (*Object, error) {
	switch {
	case r.code != codeOK && r.code != codeException:
		return nil, r.err()
	case r.num&callAsked != 0:
	case r.num&callStopped != 0 && c.ctx.Err() != nil: // by the interrupt of an enclosing call
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
	hint := "it caught the exception of the interrupt: let KeyboardInterrupt pass"
	switch {
	case r.num&callStopped != 0:
		kind, hint = ErrInterrupted, ""
	case r.num&callUnseen != 0:
		hint = "it executed no byte code after the interrupt: C code is not stopped"
	}
	return nil, c.failed(kind, hint, raised)
}

// raised returns the error of an exception of the call. It takes over the object.
func (c *contextCall) raised(exc ptr) error {
	e := newError(exc)
	if c.dropException {
		e.dropException()
	}
	return e
}

func (c *contextCall) notBegun() error { return c.failed(ErrNotBegun, "", nil) }

// failed wraps the error of the context and the exception.
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
