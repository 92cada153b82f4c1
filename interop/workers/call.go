package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/share"
)

// Call runs a Python function in one of the workers and returns its result; see the package
// documentation. The caller keeps ownership of the arguments and must not change them before Call
// returns. The caller owns the arrays in the result and releases them.
func (p *Pool) Call(ctx context.Context, function string, args ...any) (any, error) {
	if ctx.Err() != nil {
		return nil, p.notBegun(ctx, function)
	}
	if err := calls.CheckFunction(function); err != nil {
		return nil, p.count(&executor.Error{Package: "workers", Op: function, Err: err})
	}
	e := newEncoder(p.config.MaxMessage)
	if err := e.call(function, args); err != nil {
		return nil, p.count(&executor.Error{Package: "workers", Op: function, Err: err})
	}
	for again := false; ; again = true {
		r, err := p.enter(ctx, function)
		switch {
		case errors.Is(err, executor.ErrFull):
			p.counters.refused.Add(1)
			return nil, &executor.Error{Package: "workers", Op: function, Kind: executor.ErrFull}
		case errors.Is(err, executor.ErrClosed):
			return nil, &executor.Error{Package: "workers", Op: function, Kind: executor.ErrClosed}
		case err != nil && ctx.Err() != nil:
			return nil, p.notBegun(ctx, function)
		case err != nil:
			return nil, p.count(&executor.Error{Package: "workers", Op: function, Err: err})
		}
		c := call{process: r, function: function}
		result, err := c.within(ctx, e)
		if errors.Is(err, errNotSent) {
			if !again && ctx.Err() == nil {
				continue // the worker had ended before; no part of the call has begun
			}
			err = c.died()
		}
		if err != nil {
			return nil, p.count(err)
		}
		p.counters.calls.Add(1)
		return result, nil
	}
}

func (p *Pool) notBegun(ctx context.Context, function string) error {
	p.counters.notBegun.Add(1)
	return &executor.Error{Package: "workers", Op: function, Kind: python.ErrNotBegun, Err: operr.Ended(ctx)}
}

// count notes how a call ended.
func (p *Pool) count(err error) error {
	switch {
	case errors.Is(err, python.ErrNotBegun):
		p.counters.notBegun.Add(1)
		return err
	case errors.Is(err, python.ErrInterrupted), errors.Is(err, python.ErrNotStopped), errors.Is(err, executor.ErrStuck):
		p.counters.interrupted.Add(1)
	default:
		p.counters.failed.Add(1)
	}
	p.counters.calls.Add(1)
	return err
}

// errNotSent: a worker ended before all of a call was written to it.
var errNotSent = errors.New("the call was not sent")

// call is one call in a worker.
type call struct {
	process  *process
	function string
	number   uint64
	handles  []share.Handle
}

// within makes the call and returns the worker to the pool, also after a panic: an argument that was
// released fails the call, but does not cost the pool a worker.
func (c *call) within(ctx context.Context, e *encoder) (any, error) {
	r, over := c.process, false
	defer func() {
		if !over && c.number != 0 { // an answer may still arrive
			r.kill(errPanicked)
		}
		r.worker.pool.give(r)
	}()
	result, err := c.make(ctx, e)
	over = true
	return result, err
}

var errPanicked = errors.New("the program panicked in its call")

// make sends the call and waits for its answer, as long as ctx and Config.Grace allow.
func (c *call) make(ctx context.Context, e *encoder) (any, error) {
	r, p := c.process, c.process.worker.pool
	out, err := p.lender.lend(ctx, r.pid, e.arrays)
	if err != nil {
		if ctx.Err() != nil {
			return nil, &executor.Error{Package: "workers", Op: c.function, Kind: python.ErrNotBegun, Err: fmt.Errorf("%w: %w", operr.Ended(ctx), err)}
		}
		return nil, &executor.Error{Package: "workers", Op: c.function, Err: fmt.Errorf("arguments: %w", err)}
	}
	c.handles = out.handles
	if ctx.Err() != nil { // while the arguments were copied
		p.lender.revoke(c.handles)
		return nil, &executor.Error{Package: "workers", Op: c.function, Kind: python.ErrNotBegun, Err: operr.Ended(ctx)}
	}
	p.arguments.add(out.traffic)
	r.last++
	c.number = r.last
	i := &interrupt{process: r, call: c.number, grace: p.config.Grace}
	defer i.stop(context.AfterFunc(ctx, i.put))
	if err := r.wire.send(toCall, c.number, out.table, e.bytes()); err != nil {
		p.lender.revoke(c.handles)
		if errors.Is(err, ErrTooLong) {
			return nil, &executor.Error{Package: "workers", Op: c.function, Err: fmt.Errorf("arguments: %w", err)}
		}
		r.hungUp()
		if i.killed() {
			return nil, c.stuck(ctx, i)
		}
		return nil, errNotSent
	}
	result, err := c.answer(ctx)
	// The worker opens no more handles after its answer. For the arrays that it has released, this ends
	// the leases without a message from it.
	p.lender.revoke(c.handles)
	if err == nil {
		return result, nil
	}
	var failed *executor.Error
	if errors.As(err, &failed) {
		return nil, err
	}
	// The connection has ended, or the worker sent an invalid message.
	if errors.Is(err, ErrMessage) {
		r.kill(err)
	} else {
		r.hungUp()
	}
	if i.killed() {
		return nil, c.stuck(ctx, i)
	}
	return nil, c.died()
}

// answer reads the answer. An error that is not an *executor.Error means that the worker ended.
func (c *call) answer(ctx context.Context) (any, error) {
	r, p := c.process, c.process.worker.pool
	m, err := r.wire.read()
	if err != nil {
		return nil, err
	}
	if m.call != c.number {
		return nil, fmt.Errorf("%w: the answer to call %d, not %d", ErrMessage, m.call, c.number)
	}
	p.mu.Lock()
	r.worker.calls++
	p.mu.Unlock()
	switch m.kind {
	case atError:
		var f failure
		if err := parseJSON(m, &f); err != nil {
			return nil, err
		}
		why := executor.ErrClosed
		if ctx.Err() != nil {
			why = operr.Ended(ctx)
		}
		return nil, &executor.Error{Package: "workers", Op: c.function, Err: f.err(why)}
	case atResult:
		return c.result(&decoder{b: m.payload, own: true})
	}
	return nil, fmt.Errorf("%w: kind %d for an answer", ErrMessage, m.kind)
}

// result reads a result and opens the arrays in it.
func (c *call) result(d *decoder) (any, error) {
	p := c.process.worker.pool
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = d.uvarint(); err != nil {
			return nil, err
		}
	}
	entries, err := d.table()
	if err != nil {
		return nil, err
	}
	// A worker that takes too long is killed, which ends this wait too.
	d.arrays, err = openAll(context.Background(), entries, func(bool) (*share.Server, error) { return p.server, nil })
	if err != nil {
		if c.process.ending(err) {
			return nil, err
		}
		return nil, &executor.Error{Package: "workers", Op: c.function, Err: fmt.Errorf("result: %w", err)}
	}
	v, err := d.result()
	d.releaseUnused(err == nil)
	if err != nil {
		return nil, err
	}
	p.results.add(Traffic{Handles: n[0], Copies: n[1], Bytes: n[2]})
	return v, nil
}

// deathTime bounds the wait for the end of a killed process.
const deathTime = 10 * time.Second

// death returns how the process ended, or nil if it has not ended within deathTime.
func (c *call) death() *Death {
	if !within(deathTime, c.process.over) {
		return nil
	}
	return c.process.death
}

// died returns the error of a call whose worker ended during the call.
func (c *call) died() error {
	err := &executor.Error{Package: "workers", Op: c.function, Kind: ErrDied}
	if d := c.death(); d != nil {
		err.Err = d
	} else {
		err.Err = fmt.Errorf("process %d was killed but has not ended within %v", c.process.pid, deathTime)
	}
	if c.process.worker.pool.ctx.Err() != nil {
		err.Kind, err.Err = executor.ErrClosed, fmt.Errorf("%w: %w", ErrDied, err.Err)
	}
	return err
}

// stuck returns the error of a call whose worker was killed because it did not stop.
func (c *call) stuck(ctx context.Context, i *interrupt) error {
	err := fmt.Errorf("%w, but the call did not stop within %v", operr.Ended(ctx), i.grace)
	if d := c.death(); d != nil {
		err = fmt.Errorf("%w: %w", err, d)
	}
	return &executor.Error{Package: "workers", Op: c.function, Kind: executor.ErrStuck, Err: err}
}

// interrupt handles the end of a call's context: it interrupts the Python code, and kills a worker
// that continues.
type interrupt struct {
	process *process
	call    uint64
	grace   time.Duration

	mu    sync.Mutex
	over  bool // the call has ended
	dead  bool // the worker was killed for it
	timer *time.Timer
}

var errStuck = errors.New("the call did not stop when its context ended")

// put is called when the context has ended.
func (i *interrupt) put() {
	i.mu.Lock()
	if i.over {
		i.mu.Unlock()
		return
	}
	if i.call&taskBit == 0 {
		i.process.overdue.Store(true)
	}
	i.timer = time.AfterFunc(i.grace, i.expire)
	i.mu.Unlock()
	// The worker may receive it before the call. A worker that does not read is killed.
	_ = i.process.control.send(toCancel, i.call)
}

func (i *interrupt) expire() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.over {
		i.dead = true
		i.process.kill(errStuck)
	}
}

func (i *interrupt) killed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dead
}

// stop is called at the end of the call. unwatch keeps put from being called.
func (i *interrupt) stop(unwatch func() bool) {
	unwatch()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
	if i.timer != nil {
		i.timer.Stop()
	}
	if i.call&taskBit == 0 {
		i.process.overdue.Store(false)
	}
}
