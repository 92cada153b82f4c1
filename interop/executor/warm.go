package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
)

// warmup holds the steps before the first call and their progress.
type warmup struct {
	steps  []Step
	onLane chan func()   // steps for the lane; closed after the last one
	over   chan struct{} // closed when all steps are done, or one failed

	mu   sync.Mutex
	done int
	err  error
}

// steps returns all steps of the configuration, in the order in which they run.
func (e *Executor) steps() []Step {
	var all []Step
	for _, m := range e.config.Modules {
		all = append(all, Step{Name: m.Name, Run: func(_ context.Context, py *python.Interpreter) error {
			o, err := py.Module(m.Name, m.Source)
			o.Release()
			return err
		}})
	}
	for _, name := range e.config.Warm {
		all = append(all, Step{Name: name, Serial: e.isSerial(name), Run: func(ctx context.Context, py *python.Interpreter) error {
			return calls.Warm(ctx, py, name)
		}})
	}
	return append(all, e.config.Steps...)
}

func (w *warmup) init(steps []Step) {
	w.steps, w.onLane, w.over = steps, make(chan func()), make(chan struct{})
}

// progress returns the number of completed steps and of all steps.
func (w *warmup) progress() (steps, of int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done, len(w.steps)
}

// isOver reports whether all steps are done, or one failed.
func (w *warmup) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// failed returns the error of the step that failed, or nil.
func (w *warmup) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// health returns nil after the warm-up, else the error of the step that failed or the progress.
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

// laneSteps runs the steps of the lane, on its goroutine. It returns false if a step failed.
func (e *Executor) laneSteps() bool {
	for step := range e.warm.onLane {
		step()
	}
	return e.warm.failed() == nil
}

// warmUp runs the steps on the goroutine of the first slot, and starts the other slots. It returns
// false if a step failed.
func (e *Executor) warmUp() bool {
	defer close(e.warm.over)
	defer close(e.warm.onLane)
	for i, s := range e.warm.steps {
		if !e.warmStep(i, s) {
			return false
		}
	}
	more := e.config.Slots - 1
	e.slots.mu.Lock()
	e.slots.free += more
	e.slots.mu.Unlock()
	for range more {
		e.start(e.slots, nil)
	}
	return true
}

// errGoexit is the error of a step that called runtime.Goexit, for instance by FailNow of a test.
var errGoexit = errors.New("the step ended its goroutine (runtime.Goexit)")

// warmStep runs one step and records its outcome. It returns false if the step failed.
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

// step runs one step on this goroutine, or on the lane.
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

// refuse makes all waiting and further calls fail with an error.
func (e *Executor) refuse(err error) {
	for _, q := range e.queues() {
		q.mu.Lock()
		q.free = 0
		q.mu.Unlock()
		end(q.fail(err), func(j *job) error { return &Error{Op: j.function, Err: err} })
	}
}
