package executor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/interop/internal/calls"
)

// job is one call on its way. Its item says who has the say: its caller, which waits for it
// and may give it up, or the slot that runs it.
type job struct {
	item     *calls.Item
	ctx      context.Context
	function string
	callable *callable     // nil: to be imported
	args     []any         // that are for Python to convert; nil: the item has them
	read     chan struct{} // closed when args have been converted; nil like them
	ended    chan struct{} // gets a token when result and err are there, unless the caller left
	result   any
	err      error

	refs atomic.Int32 // the caller's, the queue's or slot's, those of interrupts

	// Guarded by the queue.
	queued         bool
	earlier, later *job
}

// jobs are used again: each has memory of C's and a channel.
var jobs sync.Pool

var errNoMemory = errors.New("executor: no memory for a call")

// newJob makes a call, its arguments written down where that needs no Python. It is the
// caller's.
func (e *Executor) newJob(ctx context.Context, function string, args []any) (*job, error) {
	j, ok := jobs.Get().(*job)
	if !ok {
		j = &job{item: calls.New(), ended: make(chan struct{}, 1)}
		if j.item == nil {
			return nil, errNoMemory
		}
	}
	j.refs.Store(1)
	j.ctx, j.function = ctx, function
	if f, ok := e.functions.Load(function); ok {
		j.callable = f.(*callable)
	}
	j.item.Begin(ctx)
	if !j.item.SetArguments(args) {
		j.args, j.read = args, make(chan struct{})
	}
	return j, nil
}

// release gives a reference up; the last one gives the job to the next call.
func (j *job) release() {
	if j.refs.Add(-1) != 0 {
		return
	}
	j.item.End()
	j.ctx, j.function, j.callable, j.args, j.read, j.result, j.err = nil, "", nil, nil, nil, nil, nil
	jobs.Put(j)
}

// interrupt asks the call to stop if it runs, for a cause where its context has not ended.
func (j *job) interrupt(cause error) {
	j.refs.Add(1)
	go func() { // it waits for Python's lock, which the call may have
		j.item.Interrupt(cause)
		j.release()
	}()
}

// ready reports whether the call can be made without Go.
func (j *job) ready() bool { return j.callable != nil && j.read == nil }

// quick is how long the call will take, to all appearances, in nanoseconds; false when that is
// not known, or longer than a call in a row may be.
func (j *job) quick() (nanoseconds int64, ok bool) {
	if !j.ready() {
		return 0, false
	}
	last := j.callable.last.Load()
	return last, last > 0 && last < int64(longest/4)
}

// end gives jobs that have not begun their errors, and references of all up.
func end(jobs []*job, err func(*job) error) {
	for _, j := range jobs {
		if why := err(j); j.item.Move(calls.Waiting, calls.Done) {
			j.err = why
			j.ended <- struct{}{}
		}
		j.release()
	}
}
