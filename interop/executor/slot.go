package executor

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
)

// longest bounds what a slot takes on at a time: calls in a row that take no longer together,
// by what they took the last time. When one of them takes longer all the same, its
// predecessors' results are handed over meanwhile, and those behind it taken back.
const longest = 100 * time.Microsecond

// slot is one goroutine that runs jobs.
type slot struct {
	wake  chan struct{} // gets a token when jobs are given to it while it idles; closed: none will be
	timer *time.Timer   // looks after a row

	// Written by the slot, with the queue's lock; read by others with either. Those that are
	// over, or were taken back, are other calls by then.
	jobs  [calls.Size]*job
	n     int
	since time.Time

	// Guarded by the queue.
	short    bool // in short calls, as far as is known
	stuck    bool
	replaced bool // then it ends with its jobs

	mu     sync.Mutex
	batch  *calls.Batch
	alone  *job          // that is being made with Go's part in it
	begun  bool          // the batch is being run
	over   bool          // the slot has made its jobs, and gives them up
	again  time.Duration // after which the timer looks again
	handed int           // of those that are over in the batch, how many are on their way to their callers
}

// start starts one more slot of a queue; first runs on it before the first job, and says
// whether there is to be any.
func (e *Executor) start(q *queue, first func() bool) {
	e.over.Add(1)
	e.run(q, first)
}

// run is start for a slot that over counts.
func (e *Executor) run(q *queue, first func() bool) {
	go func() {
		defer e.over.Done()
		if first != nil && !first() {
			return
		}
		s := &slot{wake: make(chan struct{}, 1), batch: calls.NewBatch()}
		s.timer = time.AfterFunc(time.Hour, func() { e.look(q, s) })
		defer s.timer.Stop()
		for q.next(s) {
			e.serve(s)
		}
	}()
}

// addSlots counts and starts threads.
func (e *Executor) addSlots(q *queue, n int) {
	q.mu.Lock()
	q.free += n
	q.mu.Unlock()
	for range n {
		e.start(q, nil)
	}
}

// stuck is what a caller does that gives a running job up.
func (e *Executor) stuck(q *queue, j *job) {
	if q.noteStuck(j, &e.over) {
		e.run(q, nil)
	}
}

// serve makes the calls that the slot was given.
func (e *Executor) serve(s *slot) {
	if j := s.jobs[0]; s.n == 1 && !j.ready() {
		e.serveAlone(s, j)
		return
	}
	s.mu.Lock()
	s.batch.Reset()
	for _, j := range s.jobs[:s.n] {
		s.batch.Add(j.item, j.callable.object)
	}
	s.begun, s.handed, s.again = true, 0, longest
	s.mu.Unlock()
	watched := s.n > 1 || e.config.Slots > 1
	if watched {
		s.timer.Reset(longest)
	}
	s.batch.Run()
	if watched {
		s.timer.Stop()
	}
	s.mu.Lock()
	s.begun, s.over = false, true
	var over [calls.Size]*job
	n := s.take(&over)
	s.mu.Unlock()
	e.finish(over[:n])
}

// take copies the jobs that are over and that nobody has taken. s.mu is held.
func (s *slot) take(over *[calls.Size]*job) (n int) {
	for ended := s.batch.Ended(); s.handed < ended; s.handed++ {
		over[n] = s.jobs[s.batch.At(s.handed)]
		n++
	}
	return n
}

// look is what the timer does: one of a row has taken longer than all were to.
func (e *Executor) look(q *queue, s *slot) {
	s.mu.Lock()
	if !s.begun {
		s.mu.Unlock()
		return
	}
	var over [calls.Size]*job
	n := s.take(&over)
	at, age := s.batch.Current()
	var back []*job
	long := age > longest
	switch {
	case long:
		back = s.takeBackLocked()
	case at < 0 && n == 0: // it waits for the GIL, as others would
		s.again = min(2*s.again, 50*longest)
		s.timer.Reset(s.again)
	default:
		s.again = longest
		s.timer.Reset(s.again)
	}
	s.mu.Unlock()
	q.putBack(back)
	if long {
		q.long(s)
	}
	e.finish(over[:n])
}

// takeBack takes the jobs that the slot has not begun. The queue is locked.
func (s *slot) takeBack() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeBackLocked()
}

func (s *slot) takeBackLocked() (jobs []*job) {
	for i := 0; s.begun && i < s.n; i++ {
		if s.batch.TakeBack(i) {
			jobs = append(jobs, s.jobs[i])
		}
	}
	return jobs
}

// unbegun returns the jobs that the slot has and has not begun, with references. The queue is
// locked.
func (s *slot) unbegun() (jobs []*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.begun:
		return s.takeBackLocked()
	case s.over || s.alone != nil:
		return nil
	}
	for _, j := range s.jobs[:s.n] { // it is about to: it finds them ended
		j.refs.Add(1)
		jobs = append(jobs, j)
	}
	return jobs
}

// runs gives the job whose call runs, if one does, to f. The queue is locked.
func (s *slot) runs(f func(*job)) {
	s.mu.Lock()
	defer s.mu.Unlock() // with it the slot, and look, give no job up that has not ended
	if s.alone != nil {
		f(s.alone)
	} else if at, _ := s.batch.Current(); s.begun && at >= 0 {
		f(s.jobs[at])
	}
}

// age is for how long the call that runs has. The queue is locked.
func (s *slot) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, age := s.batch.Current(); s.begun && s.alone == nil && at >= 0 {
		return age
	}
	return time.Since(s.since)
}

// serveAlone makes a call that needs Go before it: for its function, or its arguments.
func (e *Executor) serveAlone(s *slot, j *job) {
	var err error
	entered := e.py.With(func() error {
		if !j.item.MoveToRunning() {
			return nil // its caller has gone, and told it
		}
		s.setAlone(j)
		defer s.setAlone(nil)
		err = e.makeAlone(s, j)
		return nil
	})
	calling.DropException(err)
	if entered != nil { // Python cannot be entered
		err = entered
	}
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	if err == nil {
		e.finish([]*job{j})
		return
	}
	if j.item.Move(calls.Waiting, calls.Running) || j.item.State() != calls.Done {
		j.err = &Error{Function: j.function, Err: err}
		e.handOver(j)
	}
	j.release()
}

func (s *slot) setAlone(j *job) {
	s.mu.Lock()
	s.alone = j
	s.mu.Unlock()
}

// makeAlone makes the call, unless it returns an error. The GIL is held.
func (e *Executor) makeAlone(s *slot, j *job) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &python.PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	if j.read != nil {
		args, err := j.item.SetArgumentsWith(e.py, j.args)
		if err != nil {
			return err
		}
		defer args.Release()
		close(j.read) // from here on they may change: an import may take longer than the caller waits
	}
	if j.callable == nil {
		if j.callable, err = e.function(j.function); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.batch.Reset()
	s.batch.Add(j.item, j.callable.object)
	s.mu.Unlock()
	s.batch.Run()
	return nil
}

// finish reads the results of calls that are over, hands them to their callers, and gives the
// jobs up.
func (e *Executor) finish(jobs []*job) {
	n := 0 // of those whose results are Python's still, put first
	for i, j := range jobs {
		if j.item.Plain() {
			e.settle(j, nil)
			continue
		}
		jobs[n], jobs[i] = j, jobs[n]
		n++
	}
	if n > 0 {
		if err := e.py.With(func() error {
			for _, j := range jobs[:n] {
				e.settle(j, nil)
			}
			return nil
		}); err != nil { // Python has ended: what is its own is not to be had
			for _, j := range jobs[:n] {
				e.settle(j, err)
			}
		}
	}
	for _, j := range jobs {
		j.release()
	}
}

// settle reads a job's result, unless there is an error, and hands it over. The GIL is held
// unless the result is plain.
func (e *Executor) settle(j *job, err error) {
	// Others have said what became of those that did not run, but where Python has ended.
	if !j.item.Ran() || j.item.State() == calls.Waiting && !j.item.Move(calls.Waiting, calls.Running) {
		return
	}
	if err != nil {
		j.err = &Error{Function: j.function, Err: err}
	} else {
		e.read(j)
	}
	j.callable.last.Store(max(j.item.Took(), 1))
	e.handOver(j)
}

func (e *Executor) read(j *job) {
	defer func() {
		if v := recover(); v != nil {
			j.result, j.err = nil, &Error{Function: j.function, Err: &python.PanicError{Value: v, Stack: string(debug.Stack())}}
		}
	}()
	v, err := j.item.Result()
	if o, ok := v.(*python.Object); ok {
		v, err = fromPython(o)
		calling.DropException(err)
		o.Release()
	}
	if err == nil {
		j.result = v
		return
	}
	// It may be for the end of the context that it failed, before it was asked to stop.
	if ended := j.ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w by then)", err, ended)
	}
	j.err = &Error{Function: j.function, Err: err}
}

// handOver gives a job that is over to its caller, or drops it.
func (e *Executor) handOver(j *job) {
	e.count(j.err)
	if result := j.result; j.item.Move(calls.Running, calls.Done) {
		j.ended <- struct{}{}
	} else {
		release(result)
	}
}

// count notes how a call ended.
func (e *Executor) count(err error) {
	e.counters.calls.Add(1)
	switch {
	case err == nil:
	case errors.Is(err, python.ErrInterrupted), errors.Is(err, python.ErrNotStopped):
		e.counters.interrupted.Add(1)
	default:
		e.counters.failed.Add(1)
	}
}
