package executor

import (
	"container/list"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/calls"
)

// queue gives jobs to slots in order of arrival, and bounds those that wait.
type queue struct {
	name   string
	length int // how many may wait

	mu          sync.Mutex
	first, last *job
	waiting     int       // in it, or about to be: places taken
	outside     list.List // of *place: callers that wait for a place
	idle        []*slot   // the last to come is the first to go: its caches are warm
	busy        map[*slot]struct{}
	short       int // of them: in short calls
	free        int // slots that run, or will run, what is in the queue
	stuck       int
	spare       int // stuck slots that may still be replaced
	closed      bool
	failure     error // why calls are refused from now on
}

// place is a wait for a place in the queue.
type place struct {
	told  chan struct{} // closed when it is given, or none will be
	given bool
}

func newQueue(name string, length, spare int) *queue {
	return &queue{name: name, length: length, busy: map[*slot]struct{}{}, spare: spare}
}

// enter puts a job in, or gives it to an idle slot; either has a reference then. Errors:
// ErrFull, the context's where wait is set, what close and fail say.
func (q *queue) enter(j *job, wait bool) error {
	q.mu.Lock()
	given := false
	for {
		if err := q.refusal(); err != nil {
			q.leavePlace(given)
			q.mu.Unlock()
			return err
		}
		if len(q.idle) > 0 && !q.soon(j, given) {
			s := q.idler()
			q.leavePlace(given)
			j.refs.Add(1)
			q.give(s, j)
			q.fill(s)
			q.mu.Unlock()
			s.wake <- struct{}{}
			return nil
		}
		if given || q.waiting < q.length {
			break
		}
		if !wait {
			q.mu.Unlock()
			return ErrFull
		}
		p := &place{told: make(chan struct{})}
		at := q.outside.PushBack(p)
		q.mu.Unlock()
		var ended error
		select {
		case <-p.told:
		case <-j.ctx.Done():
			ended = j.ctx.Err()
		}
		q.mu.Lock()
		given = p.given
		if ended != nil {
			q.outside.Remove(at) // if it is still there
			q.leavePlace(given)
			q.mu.Unlock()
			return ended
		}
	}
	if !given {
		q.waiting++
	}
	j.refs.Add(1)
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

// idler takes the slot that idles since last; there is one.
func (q *queue) idler() *slot {
	n := len(q.idle) - 1
	s := q.idle[n]
	q.idle = q.idle[:n]
	return s
}

// soon reports whether a job is served sooner, and cheaper, by a slot that is in short calls
// than by one that idles: two of them only take turns under the GIL. look sees to it where a
// call takes longer after all.
func (q *queue) soon(j *job, given bool) bool {
	if q.short == 0 || !given && q.waiting >= q.length {
		return false
	}
	_, ok := j.quick()
	return ok
}

// setShort notes whether a slot is in short calls.
func (q *queue) setShort(s *slot, is bool) {
	if s.short != is {
		s.short = is
		if is {
			q.short++
		} else {
			q.short--
		}
	}
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

// leavePlace gives a place up, to the next that waits for one.
func (q *queue) leavePlace(had bool) {
	if !had {
		return
	}
	q.waiting--
	for q.waiting < q.length && q.outside.Len() > 0 {
		p := q.outside.Remove(q.outside.Front()).(*place)
		p.given = true
		q.waiting++
		close(p.told)
	}
}

// tellOutside has those that wait for a place look why there is none.
func (q *queue) tellOutside() {
	for q.outside.Len() > 0 {
		close(q.outside.Remove(q.outside.Front()).(*place).told)
	}
}

// give notes what a slot is about to run.
func (q *queue) give(s *slot, j *job) {
	if s.n == 0 {
		s.since = time.Now()
		q.busy[s] = struct{}{}
	}
	s.jobs[s.n] = j
	s.n++
}

// unlink takes a job out; its reference is the caller's.
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
	q.leavePlace(true)
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
		j.release()
	}
}

// takeAll takes out what waits.
func (q *queue) takeAll() (jobs []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.first != nil {
		jobs = append(jobs, q.first)
		q.unlink(q.first)
	}
	return jobs
}

// putBack takes jobs back that a slot had and has not begun, in their order, before all
// others: with slots that idle begin them. Their references are the queue's again.
func (q *queue) putBack(jobs []*job) {
	if len(jobs) == 0 {
		return
	}
	q.mu.Lock()
	for i := len(jobs) - 1; i >= 0; i-- {
		j := jobs[i]
		j.queued, j.later = true, q.first
		if q.first != nil {
			q.first.earlier = j
		} else {
			q.last = j
		}
		q.first = j
		q.waiting++
	}
	q.wakeIdle()
	failure := q.failure
	q.mu.Unlock()
	if failure != nil {
		end(q.takeAll(), func(*job) error { return failure })
	}
}

// wakeIdle has slots that idle begin what waits.
func (q *queue) wakeIdle() {
	for len(q.idle) > 0 && q.first != nil {
		s := q.idler()
		q.fill(s)
		s.wake <- struct{}{} // there is room: it idles
	}
}

// long is what becomes of a slot whose calls take longer than they were to: what waits is for
// others.
func (q *queue) long(s *slot) {
	q.mu.Lock()
	q.setShort(s, false)
	q.wakeIdle()
	q.mu.Unlock()
}

// fill gives a slot the first job, and those behind it where all are quick: what can be made in
// a row without anybody waiting for long. false: there is none.
func (q *queue) fill(s *slot) bool {
	if s.n == 0 {
		j := q.first
		if j == nil {
			return false
		}
		q.unlink(j)
		q.give(s, j)
	}
	took, ok := s.jobs[0].quick()
	q.setShort(s, ok)
	for all := took; ok && s.n < calls.Size && q.first != nil; all += took {
		j := q.first
		if took, ok = j.quick(); !ok || all+took > int64(longest) {
			break
		}
		q.unlink(j)
		q.give(s, j)
	}
	return true
}

// next waits for the next jobs of a slot whose last ones are over; false ends the slot.
func (q *queue) next(s *slot) bool {
	q.mu.Lock()
	if !q.leave(s) {
		q.mu.Unlock()
		return false
	}
	if q.fill(s) {
		q.mu.Unlock()
		return true
	}
	if q.closed {
		q.free--
		q.mu.Unlock()
		return false
	}
	q.idle = append(q.idle, s)
	q.mu.Unlock()
	_, ok := <-s.wake
	return ok
}

// leave notes that the jobs of a slot are over; false ends the slot, which was replaced.
func (q *queue) leave(s *slot) bool {
	if s.n == 0 {
		return true
	}
	clear(s.jobs[:s.n])
	s.n = 0
	s.mu.Lock()
	s.over = false
	s.mu.Unlock()
	q.setShort(s, false)
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

// noteStuck counts the slot that runs the job as stuck, if it still does, takes back what it
// had behind it, and reports whether another slot is to be run for it, which over counts
// already.
func (q *queue) noteStuck(j *job, over *sync.WaitGroup) (replace bool) {
	q.mu.Lock()
	var back []*job
	for s := range q.busy {
		is := false
		s.runs(func(runs *job) { is = runs == j })
		if s.stuck || !is {
			continue
		}
		back = s.takeBack()
		s.stuck = true
		q.stuck++
		q.free--
		if q.spare > 0 && !q.closed {
			q.spare--
			q.free++
			s.replaced = true
			over.Add(1) // while that slot, which is in busy, is counted too
			replace = true
		}
		break
	}
	q.mu.Unlock()
	q.putBack(back)
	return replace
}

// close takes no new jobs; slots end when those that wait are done.
func (q *queue) close() {
	q.mu.Lock()
	idle := q.idle
	q.idle = nil
	q.closed = true
	q.tellOutside()
	q.free -= len(idle)
	q.mu.Unlock()
	for _, s := range idle {
		close(s.wake)
	}
}

// fail refuses all jobs from now on with an error; those that wait are the caller's.
func (q *queue) fail(err error) []*job {
	q.mu.Lock()
	if q.failure == nil {
		q.failure = err
	}
	q.tellOutside()
	q.mu.Unlock()
	return q.takeAll()
}

// counts returns how many slots take jobs, and how many are stuck.
func (q *queue) counts() (free, stuck int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.free, q.stuck
}

// size returns how many jobs wait for a slot.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// runs returns how many calls run, which of them began first, and for how long it has run.
func (q *queue) runs() (n int, function string, age time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range q.busy {
		if a := s.age(); n == 0 || a > age {
			age = a
			s.runs(func(j *job) { function = j.function })
		}
		n++
	}
	return n, function, age
}

// interruptAll asks all calls that run to stop, and returns those that slots have and have not
// begun, with references.
func (q *queue) interruptAll(cause error) (jobs []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range q.busy {
		jobs = append(jobs, s.unbegun()...)
		s.runs(func(j *job) { j.interrupt(cause) })
	}
	return jobs
}
