package executor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// States of a job. Whoever takes it out of waiting or running has the say.
const (
	waiting int32 = iota // in a queue, or its slot waits for the GIL
	running              // by its slot, which has the GIL
	left                 // given up by its caller: nobody wants the result
	done                 // result and err are set, and ended is closed, now or soon
)

// job is one call on its way.
type job struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc // of ctx: Close interrupts with it
	function string
	args     []any

	state  atomic.Int32
	read   chan struct{} // closed when args have been converted
	ended  chan struct{} // closed when result and err are there
	result any
	err    error

	// Guarded by the queue.
	queued         bool
	earlier, later *job
}

// slot is one thread that runs jobs.
type slot struct {
	next    chan *job // what is handed to it while it idles; nil ends it
	results handover  // of calls that it has made

	// Guarded by the queue.
	job      *job
	since    time.Time
	stuck    bool
	replaced bool // then it ends with its job
}

// queue gives jobs to slots in order of arrival, and bounds those that wait.
type queue struct {
	name string
	room chan struct{} // holds a token for each job that waits
	over chan struct{} // closed by close and fail

	mu          sync.Mutex
	first, last *job
	idle        []*slot // the last to come is the first to go: its caches are warm
	busy        map[*slot]struct{}
	free        int // slots that run, or will run, what is in the queue
	stuck       int
	spare       int // stuck slots that may still be replaced
	closed      bool
	failure     error // why calls are refused from now on
}

func newQueue(name string, length, spare int) *queue {
	return &queue{name: name, room: make(chan struct{}, length), over: make(chan struct{}),
		busy: map[*slot]struct{}{}, spare: spare}
}

// enter puts a job in, or gives it to an idle slot. Errors: ErrFull, the context's where
// wait is set, what close and fail say.
func (q *queue) enter(j *job, wait bool) error {
	select {
	case q.room <- struct{}{}:
	default:
		if !wait {
			return ErrFull
		}
		select {
		case q.room <- struct{}{}:
		case <-j.ctx.Done():
			return j.ctx.Err()
		case <-q.over:
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.refusal()
		}
	}
	q.mu.Lock()
	if err := q.refusal(); err != nil {
		q.mu.Unlock()
		<-q.room
		return err
	}
	if n := len(q.idle); n > 0 {
		s := q.idle[n-1]
		q.idle = q.idle[:n-1]
		q.take(s, j)
		q.mu.Unlock()
		<-q.room
		s.next <- j
		return nil
	}
	j.queued, j.earlier = true, q.last
	if q.last != nil {
		q.last.later = j
	} else {
		q.first = j
	}
	q.last = j
	q.mu.Unlock()
	return nil
}

func (q *queue) refusal() error {
	if q.failure != nil {
		return q.failure
	}
	if q.closed {
		return ErrClosed
	}
	return nil
}

// take notes what a slot is about to run.
func (q *queue) take(s *slot, j *job) {
	s.job, s.since = j, time.Now()
	q.busy[s] = struct{}{}
}

// unlink takes a job out.
func (q *queue) unlink(j *job) {
	if j.earlier != nil {
		j.earlier.later = j.later
	} else {
		q.first = j.later
	}
	if j.later != nil {
		j.later.earlier = j.earlier
	} else {
		q.last = j.earlier
	}
	j.queued, j.earlier, j.later = false, nil, nil
}

// remove takes a job out that its caller gave up, if it is still in.
func (q *queue) remove(j *job) {
	q.mu.Lock()
	was := j.queued
	if was {
		q.unlink(j)
	}
	q.mu.Unlock()
	if was {
		<-q.room
	}
}

// takeAll takes out what waits.
func (q *queue) takeAll() (jobs []*job) {
	q.mu.Lock()
	for q.first != nil {
		jobs = append(jobs, q.first)
		q.unlink(q.first)
	}
	q.mu.Unlock()
	for range jobs {
		<-q.room
	}
	return jobs
}

// next waits for the next job of a slot whose last one is over; nil ends the slot.
func (q *queue) next(s *slot) *job {
	q.mu.Lock()
	if !q.leave(s) {
		q.mu.Unlock()
		return nil
	}
	if j := q.pop(s); j != nil {
		q.mu.Unlock()
		<-q.room
		return j
	}
	if q.closed {
		q.free--
		q.mu.Unlock()
		return nil
	}
	q.idle = append(q.idle, s)
	q.mu.Unlock()
	return <-s.next
}

// more gives a slot whose last job is over another one; nil where none waits, or the
// slot is to ask next.
func (q *queue) more(s *slot) *job {
	q.mu.Lock()
	if s.stuck {
		q.mu.Unlock()
		return nil
	}
	if q.first == nil {
		q.mu.Unlock()
		return nil
	}
	j := q.pop(s)
	q.mu.Unlock()
	<-q.room
	return j
}

// pop takes out the first job, for a slot; nil where none waits.
func (q *queue) pop(s *slot) *job {
	j := q.first
	if j != nil {
		q.unlink(j)
		q.take(s, j)
	}
	return j
}

// leave notes that the job of a slot is over; false ends the slot, which was replaced.
func (q *queue) leave(s *slot) bool {
	if s.job == nil {
		return true
	}
	s.job = nil
	delete(q.busy, s)
	if !s.stuck {
		return true
	}
	s.stuck = false
	q.stuck--
	if s.replaced {
		q.spare++
		return false
	}
	q.free++
	return true
}

// noteStuck counts the slot that runs the job as stuck, if it still does, and reports
// whether another is to be run for it, which over counts already.
func (q *queue) noteStuck(j *job, over *sync.WaitGroup) (replace bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range q.busy {
		if s.job != j || s.stuck {
			continue
		}
		s.stuck = true
		q.stuck++
		q.free--
		if q.spare > 0 && !q.closed {
			q.spare--
			q.free++
			s.replaced = true
			over.Add(1) // while that slot, which is in busy, is counted too
			return true
		}
	}
	return false
}

// close takes no new jobs; slots end when those that wait are done.
func (q *queue) close() {
	q.mu.Lock()
	idle := q.idle
	q.idle = nil
	if !q.closed {
		q.closed = true
		if q.failure == nil {
			close(q.over)
		}
	}
	q.free -= len(idle)
	q.mu.Unlock()
	for _, s := range idle {
		close(s.next)
	}
}

// fail refuses all jobs from now on with an error; those that wait are the caller's.
func (q *queue) fail(err error) []*job {
	q.mu.Lock()
	if q.failure == nil {
		q.failure = err
		if !q.closed {
			close(q.over)
		}
	}
	q.mu.Unlock()
	return q.takeAll()
}

// counts returns how many slots take jobs, and how many are stuck.
func (q *queue) counts() (free, stuck int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.free, q.stuck
}

// length returns how many jobs wait for a slot.
func (q *queue) length() int { return len(q.room) }

// runs returns how many jobs run, which of them began first, and when.
func (q *queue) runs() (n int, oldest *job, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range q.busy {
		if oldest == nil || s.since.Before(since) {
			oldest, since = s.job, s.since
		}
	}
	return len(q.busy), oldest, since
}

// interruptAll ends the contexts of all jobs that run.
func (q *queue) interruptAll(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range q.busy {
		s.job.cancel(cause)
	}
}
