package executor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
)

// job is one call. The state of its item records which side owns it: its caller, which waits for the
// result and may give up, or the slot that runs it.
type job struct {
	item     *calls.Item
	ctx      context.Context
	function string
	callable *callable     // nil: not imported yet
	args     []any         // arguments that only Python can convert; nil: the item has the arguments
	read     chan struct{} // closed when args are converted; nil if args is nil
	ended    chan struct{} // receives a token when result and err are set, unless the caller left
	result   any
	err      error

	refs atomic.Int32 // references of the caller, of the queue or slot, and of interrupts

	// Guarded by queue.mu.
	queued         bool
	flow           *flow // while it is queued
	earlier, later *job
}

// jobs are reused: each has memory of C and a channel.
var jobs sync.Pool

var errNoMemory = errors.New("executor: no memory for a call")

// newJob returns a job with one reference, for the caller. Arguments that need no Python are encoded.
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

// release drops a reference. The last one returns the job to the pool.
func (j *job) release() {
	if j.refs.Add(-1) != 0 {
		return
	}
	j.item.End()
	j.ctx, j.function, j.callable, j.args, j.read, j.result, j.err = nil, "", nil, nil, nil, nil, nil
	jobs.Put(j)
}

// interrupt asks the call to stop if it runs. cause is the reason if its context has not ended.
func (j *job) interrupt(cause error) {
	j.refs.Add(1)
	go func() { // Interrupt waits for the GIL, which the call may hold.
		j.item.Interrupt(cause)
		j.release()
	}()
}

// ready reports whether C can make the call on its own: function and arguments are known.
func (j *job) ready() bool { return j.callable != nil && j.read == nil }

// quick returns the expected duration of the call in nanoseconds. ok is false if it is unknown, or
// too long for a row.
func (j *job) quick() (nanoseconds int64, ok bool) {
	if !j.ready() {
		return 0, false
	}
	last := j.callable.last.Load()
	return last, last > 0 && last < int64(longest/4)
}

// end sets the errors of jobs that have not begun, and drops a reference of each job.
func end(jobs []*job, err func(*job) error) {
	for _, j := range jobs {
		if why := err(j); j.item.Move(calls.Waiting, calls.Done) {
			j.err = why
			j.ended <- struct{}{}
		}
		j.release()
	}
}

// callable is an imported function.
type callable struct {
	object *python.Object
	last   atomic.Int64 // duration of the last completed call in nanoseconds; 0: none
}

// function returns the Python function of a name. It imports the function once and keeps it until
// Close. The GIL must be held.
func (e *Executor) function(name string) (*callable, error) {
	if f, ok := e.functions.Load(name); ok {
		return f.(*callable), nil
	}
	o, err := calls.Function(e.py, name)
	if err != nil {
		return nil, err
	}
	f := &callable{object: o}
	if before, loaded := e.functions.LoadOrStore(name, f); loaded {
		o.Release()
		return before.(*callable), nil
	}
	return f, nil
}
