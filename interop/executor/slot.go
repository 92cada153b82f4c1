package executor

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/internal/values"
	"github.com/usmbridge/usmbridge/interop/python"
)

// longest is the maximum expected duration of a row of calls, by their last durations. If a call takes
// longer, the results before it are delivered, and the jobs behind it return to the queue.
const longest = 100 * time.Microsecond

// slot is a goroutine that runs jobs.
type slot struct {
	wake  chan struct{} // receives a token when an idle slot gets jobs; closed when the slot must end
	timer *time.Timer   // calls look while a row runs

	// Written with queue.mu held, by the slot or for an idle slot. Other goroutines read them with
	// queue.mu held, or with mu held while begun is set. A job that was taken for delivery or taken back
	// may be reused: it is then another call.
	jobs  [calls.Size]*job
	flows [calls.Size]*flow // of the jobs; guarded by queue.mu
	n     int
	since time.Time

	// Guarded by queue.mu.
	short    bool // in short calls, by their last durations
	stuck    bool
	replaced bool // by another slot: it ends after its jobs

	mu     sync.Mutex
	batch  *calls.Batch
	alone  *job          // the running call of serveAlone
	begun  bool          // the batch runs
	over   bool          // the jobs are done, and their results are being delivered
	again  time.Duration // time until look runs again
	handed int           // number of completed calls of the batch that were taken for delivery
}

// start starts a slot of a queue. first, if not nil, runs on its goroutine before any job; if it
// returns false, the slot ends.
func (e *Executor) start(q *queue, first func() bool) {
	e.over.Add(1)
	e.run(q, first)
}

// run is start for a slot that e.over counts already.
func (e *Executor) run(q *queue, first func() bool) {
	go func() {
		defer e.over.Done()
		if first != nil && !first() {
			return
		}
		s := &slot{wake: make(chan struct{}, 1), batch: calls.NewBatch()}
		s.timer = time.AfterFunc(time.Hour, func() { e.onTimer(q, s) })
		defer s.timer.Stop()
		for q.next(s) {
			e.serve(s)
		}
	}()
}

// serve makes the calls of a slot's jobs.
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
	n := s.takeCompleted(&over)
	s.mu.Unlock()
	e.finish(over[:n])
}

// takeCompleted copies the jobs that completed since its last call. s.mu must be held.
func (s *slot) takeCompleted(over *[calls.Size]*job) (n int) {
	for ended := s.batch.Ended(); s.handed < ended; s.handed++ {
		over[n] = s.jobs[s.batch.At(s.handed)]
		n++
	}
	return n
}

// onTimer is the timer callback of a slot whose jobs take longer than expected.
func (e *Executor) onTimer(q *queue, s *slot) {
	s.mu.Lock()
	if !s.begun {
		s.mu.Unlock()
		return
	}
	var over [calls.Size]*job
	n := s.takeCompleted(&over)
	at, age := s.batch.Current()
	var back []*job
	long := age > longest
	switch {
	case long:
		back = s.takeBackLocked()
	case at < 0 && n == 0: // The slot waits for the GIL. Another slot would wait too.
		s.again = min(2*s.again, 50*longest)
		s.timer.Reset(s.again)
	default:
		s.again = longest
		s.timer.Reset(s.again)
	}
	s.mu.Unlock()
	if long {
		q.putBack(s, back)
	}
	e.finish(over[:n])
}

// takeBack removes the jobs that the slot has not begun. queue.mu must be held.
func (s *slot) takeBack() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeBackLocked()
}

// takeBackLocked is takeBack with s.mu held.
func (s *slot) takeBackLocked() (jobs []*job) {
	for i := 0; s.begun && i < s.n; i++ {
		if s.batch.TakeBack(i) {
			jobs = append(jobs, s.jobs[i])
		}
	}
	return jobs
}

// unbegun returns the jobs that the slot has not begun, with references. queue.mu must be held.
func (s *slot) unbegun() (jobs []*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.begun:
		return s.takeBackLocked()
	case s.over || s.alone != nil:
		return nil
	}
	for _, j := range s.jobs[:s.n] { // The slot is about to begin them. It will find them ended.
		j.refs.Add(1)
		jobs = append(jobs, j)
	}
	return jobs
}

// runs calls f with the job whose call runs, if there is one. queue.mu must be held.
func (s *slot) runs(f func(*job)) {
	s.mu.Lock()
	defer s.mu.Unlock() // While f runs, neither the slot nor look releases the job.
	if s.alone != nil {
		f(s.alone)
	} else if at, _ := s.batch.Current(); s.begun && at >= 0 {
		f(s.jobs[at])
	}
}

// age returns how long the current call has run. queue.mu must be held.
func (s *slot) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, age := s.batch.Current(); s.begun && s.alone == nil && at >= 0 {
		return age
	}
	return time.Since(s.since)
}

// serveAlone makes a call whose function must be imported, or whose arguments Python must convert.
func (e *Executor) serveAlone(s *slot, j *job) {
	var err error
	entered := e.py.With(func() error {
		if !j.item.MoveToRunning() {
			return nil // The caller left.
		}
		s.setAlone(j)
		defer s.setAlone(nil)
		err = e.makeAlone(s, j)
		return nil
	})
	calling.DropException(err)
	if entered != nil { // Python has ended.
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
		j.err = &Error{Op: j.function, Err: err}
		e.handOver(j)
	}
	j.release()
}

func (s *slot) setAlone(j *job) {
	s.mu.Lock()
	s.alone = j
	s.mu.Unlock()
}

// makeAlone makes the call. If it returns an error, the call was not made. The GIL must be held.
func (e *Executor) makeAlone(s *slot, j *job) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &python.PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	if j.read != nil {
		defer j.item.ReleaseArguments()
		if err := j.item.SetArgumentsWith(e.py, j.args); err != nil {
			return err
		}
		close(j.read) // The caller may change them now: an import can take longer than the caller waits.
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

// finish delivers the results of completed calls and releases the jobs.
func (e *Executor) finish(jobs []*job) {
	n := 0 // jobs whose results need Python; they move to the front
	for i, j := range jobs {
		if j.item.Plain() {
			e.deliver(j, nil)
			continue
		}
		jobs[n], jobs[i] = j, jobs[n]
		n++
	}
	if n > 0 {
		if err := e.py.With(func() error {
			for _, j := range jobs[:n] {
				e.deliver(j, nil)
			}
			return nil
		}); err != nil { // Python has ended: its objects cannot be read.
			for _, j := range jobs[:n] {
				e.deliver(j, err)
			}
		}
	}
	for _, j := range jobs {
		j.release()
	}
}

// deliver reads the result of a job, unless err is set, and hands it over. The GIL must be held unless
// the result is plain.
func (e *Executor) deliver(j *job, err error) {
	// If the call was not made, its caller or end has set its outcome, unless Python has ended.
	if !j.item.Ran() || j.item.State() == calls.Waiting && !j.item.Move(calls.Waiting, calls.Running) {
		return
	}
	if err != nil {
		j.err = &Error{Op: j.function, Err: err}
	} else {
		e.read(j)
	}
	j.callable.last.Store(max(j.item.Took(), 1))
	e.handOver(j)
}

// read sets the result or the error of a job. The GIL must be held unless the result is plain.
func (e *Executor) read(j *job) {
	defer func() {
		if v := recover(); v != nil {
			j.result, j.err = nil, &Error{Op: j.function, Err: &python.PanicError{Value: v, Stack: string(debug.Stack())}}
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
	// The end of the context can be the reason of the failure before an interrupt arrives.
	if ended := j.ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (its context has ended: %w)", err, ended)
	}
	j.err = &Error{Op: j.function, Err: err}
}

// handOver counts a completed job and wakes its caller. If the caller left, it releases the result.
func (e *Executor) handOver(j *job) {
	e.count(j.err)
	if result := j.result; j.item.Move(calls.Running, calls.Done) {
		j.ended <- struct{}{}
	} else {
		values.Release(result)
	}
}

// count counts a completed call by its outcome.
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
