package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/usmbridge/usmbridge/interop/python"
)

// warmup is the steps before the first call.
type warmup struct {
	steps  []Step
	onLane chan func()   // closed when no step is left
	over   chan struct{} // closed when all are done, or one failed

	mu   sync.Mutex
	done int
	err  error
}

func (w *warmup) init(steps []Step) {
	w.steps, w.onLane, w.over = steps, make(chan func()), make(chan struct{})
}

// progress returns how many steps are done, of how many.
func (w *warmup) progress() (steps, of int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done, len(w.steps)
}

// isOver reports whether no step is left to run, or runs.
func (w *warmup) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// failed returns why a step failed, nil when none has.
func (w *warmup) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// health says what is to be done, nil when that is nothing.
func (w *warmup) health() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.isOver() {
		return nil
	}
	if w.done == len(w.steps) {
		return fmt.Errorf("%d of %d steps done", w.done, len(w.steps))
	}
	return fmt.Errorf("%d of %d steps done, now %s", w.done, len(w.steps), w.steps[w.done].Name)
}

// laneSteps is what the lane's thread does until the warm-up is over.
func (e *Executor) laneSteps() bool {
	for step := range e.warm.onLane {
		step()
	}
	return e.warm.failed() == nil
}

// warmUp runs the steps on the first slot's thread, and starts the other slots.
func (e *Executor) warmUp() bool {
	defer close(e.warm.over)
	defer close(e.warm.onLane)
	for i, s := range e.warm.steps {
		if !e.warmStep(i, s) {
			return false
		}
	}
	e.addSlots(e.slots, e.config.Slots-1)
	return true
}

// errGoexit is a step that did not return, as of runtime.Goexit or a test's FailNow.
var errGoexit = errors.New("it ended its goroutine")

// warmStep runs one step and notes how it ended; false is not well.
func (e *Executor) warmStep(i int, s Step) bool {
	err := errGoexit
	defer func() {
		e.warm.mu.Lock()
		if err == nil {
			e.warm.done++
		} else {
			err = fmt.Errorf("warm-up: step %d, %s: %w", i+1, s.Name, err)
			e.warm.err = err
		}
		e.warm.mu.Unlock()
		if err != nil {
			e.refuse(err)
		}
	}()
	if err = e.step(s); err == nil {
		err = context.Cause(e.ctx)
	}
	return err == nil
}

// step runs one step, where it wants to be.
func (e *Executor) step(s Step) (err error) {
	run := func() {
		defer func() {
			if v := recover(); v != nil {
				err = &python.PanicError{Value: v, Stack: string(debug.Stack())}
			}
		}()
		err = errGoexit
		err = s.Run(e.ctx, e.py)
	}
	if !s.Serial {
		run()
		return err
	}
	over := make(chan struct{})
	e.warm.onLane <- func() { defer close(over); run() }
	<-over
	return err
}

// refuse ends all that wait with an error, and what is to come.
func (e *Executor) refuse(err error) {
	for _, q := range e.queues() {
		q.mu.Lock()
		q.free = 0
		q.mu.Unlock()
		end(q.fail(err), func(j *job) error { return &Error{Function: j.function, Err: err} })
	}
}
