package executor

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/internal/fair"
)

// queue gives jobs to slots. Functions take turns, and the jobs of one function begin in order of arrival. The number of
// waiting jobs is bounded.
type queue struct {
	name   string
	length int // maximum number of waiting jobs

	mu      sync.Mutex
	turns   fair.Queue[jobList] // the waiting jobs of each function
	waiting int                 // places in use, by jobs in the queue or about to enter it
	outside list.List           // of *place: callers that wait for a place in the queue
	idle    []*slot             // a stack: the caches of the last slot are warm
	busy    map[*slot]struct{}
	short   int // busy slots in short calls
	free    int // slots that take jobs now or after their calls
	stuck   int
	spare   int // stuck slots that may still be replaced
	closed  bool
	failure error // the reason to refuse all calls; nil: they are not refused
}

// jobList is the waiting jobs of one function, in order of arrival.
type jobList struct{ first, last *job }

// flow is a function whose calls a queue counts.
type flow = fair.Flow[jobList]

// place is a caller's wait for a place in the queue.
type place struct {
	ready chan struct{} // closed when the place is given, or the queue refuses calls
	given bool
}

func newQueue(name string, length, spare int) *queue {
	return &queue{name: name, length: length, busy: map[*slot]struct{}{}, spare: spare}
}

// enter appends a job, or gives it to an idle slot, with a reference. Errors: ErrFull, the error of
// the context if wait is set, ErrClosed, and the error of fail.
func (q *queue) enter(j *job, wait bool) error {
	q.mu.Lock()
	given := false
	for {
		if err := q.refusal(); err != nil {
			q.leavePlace(given)
			q.mu.Unlock()
			return err
		}
		if len(q.idle) > 0 && !q.waitsForShort(j, given) {
			s := q.popIdle()
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
		p := &place{ready: make(chan struct{})}
		at := q.outside.PushBack(p)
		q.mu.Unlock()
		var ended error
		select {
		case <-p.ready:
		case <-j.ctx.Done():
			ended = j.ctx.Err()
		}
		q.mu.Lock()
		given = p.given
		if ended != nil {
			q.outside.Remove(at) // no effect if it was removed
			q.leavePlace(given)
			q.mu.Unlock()
			return ended
		}
	}
	if !given {
		q.waiting++
	}
	j.refs.Add(1)
	j.flow = q.turns.Flow(j.function)
	list := &j.flow.Items
	j.queued, j.earlier = true, list.last
	if list.last != nil {
		list.last.later = j
	} else {
		list.first = j
	}
	list.last = j
	q.turns.Wait(j.flow)
	q.mu.Unlock()
	return nil
}

// front returns the job that begins next, or nil.
func (q *queue) front() *job {
	if f := q.turns.Next(); f != nil {
		return f.Items.first
	}
	return nil
}

// take gives a job, with a reference, to an idle slot for the goroutine of the caller, who calls giveBack
// afterwards. It returns nil if no slot is idle.
func (q *queue) take(j *job) *slot {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusal() != nil || len(q.idle) == 0 {
		return nil
	}
	s := q.popIdle()
	j.refs.Add(1)
	q.give(s, j)
	return s
}

// giveBack makes a slot of take idle, or wakes its goroutine for the next jobs or to end.
func (q *queue) giveBack(s *slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(s)
	switch {
	case q.fill(s):
		s.wake <- struct{}{} // does not block, as in wakeIdle
	case q.closed:
		q.free--
		close(s.wake)
	default:
		q.idle = append(q.idle, s)
	}
}

// popIdle removes the slot that became idle last. There is an idle slot.
func (q *queue) popIdle() *slot {
	n := len(q.idle) - 1
	s := q.idle[n]
	q.idle = q.idle[:n]
	return s
}

// waitsForShort reports whether a quick job should wait for a slot that runs short calls, instead of waking
// an idle slot. The GIL lets only one of two slots run, so waking a slot costs more than the wait. If a
// call takes longer than expected, Executor.look wakes idle slots.
func (q *queue) waitsForShort(j *job, given bool) bool {
	if q.short == 0 || !given && q.waiting >= q.length {
		return false
	}
	_, ok := j.quick()
	return ok
}

// setShort records whether a slot is in short calls.
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

// refusal returns the error of new calls, or nil.
func (q *queue) refusal() error {
	if q.failure != nil {
		return q.failure
	}
	if q.closed {
		return ErrClosed
	}
	return nil
}

// leavePlace frees a place, if the caller had one, for the next caller that waits for a place.
func (q *queue) leavePlace(had bool) {
	if !had {
		return
	}
	q.waiting--
	for q.waiting < q.length && q.outside.Len() > 0 {
		p := q.outside.Remove(q.outside.Front()).(*place)
		p.given = true
		q.waiting++
		close(p.ready)
	}
}

// refuseOutside wakes the callers that wait for a place. They find the reason in refusal.
func (q *queue) refuseOutside() {
	for q.outside.Len() > 0 {
		close(q.outside.Remove(q.outside.Front()).(*place).ready)
	}
}

// give appends a job to those of a slot.
func (q *queue) give(s *slot, j *job) {
	if s.n == 0 {
		s.since = time.Now()
		q.busy[s] = struct{}{}
	}
	s.jobs[s.n], s.flows[s.n] = j, q.turns.Flow(j.function)
	q.turns.Begin(s.flows[s.n])
	s.n++
}

// unlink removes a job. The caller takes over its reference.
func (q *queue) unlink(j *job) {
	list := &j.flow.Items
	if j.earlier != nil {
		j.earlier.later = j.later
	} else {
		list.first = j.later
	}
	if j.later != nil {
		j.later.earlier = j.earlier
	} else {
		list.last = j.earlier
	}
	q.turns.Leave(j.flow)
	j.queued, j.earlier, j.later = false, nil, nil
	q.leavePlace(true)
}

// remove removes an abandoned job if it is still in the queue.
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

// takeAll removes all waiting jobs. The caller takes over their references.
func (q *queue) takeAll() (jobs []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for j := q.front(); j != nil; j = q.front() {
		jobs = append(jobs, j)
		q.unlink(j)
	}
	return jobs
}

// putBack records that the calls of a slot take longer than expected. It returns the jobs that the slot has
// not begun to the front of their functions, in order, and wakes idle slots for the waiting jobs. The queue takes
// over the references of the jobs.
func (q *queue) putBack(s *slot, jobs []*job) {
	q.mu.Lock()
	q.setShort(s, false)
	for i := len(jobs) - 1; i >= 0; i-- {
		j := jobs[i]
		if at := slices.Index(s.jobs[:s.n], j); at >= 0 {
			q.turns.End(s.flows[at], 0)
			s.flows[at] = nil
		}
		j.flow = q.turns.Flow(j.function)
		list := &j.flow.Items
		j.queued, j.later = true, list.first
		if list.first != nil {
			list.first.earlier = j
		} else {
			list.last = j
		}
		list.first = j
		q.turns.Wait(j.flow)
		q.waiting++
	}
	q.wakeIdle()
	failure := q.failure
	q.mu.Unlock()
	if failure != nil {
		end(q.takeAll(), func(*job) error { return failure })
	}
}

// wakeIdle gives waiting jobs to idle slots.
func (q *queue) wakeIdle() {
	for len(q.idle) > 0 && q.front() != nil {
		s := q.popIdle()
		q.fill(s)
		s.wake <- struct{}{} // Does not block: the channel of an idle slot is empty.
	}
}

// fill gives a slot the first job. If that is quick, fill adds the quick jobs behind it, as long as
// all of them together take at most longest. It reports whether the slot has a job.
func (q *queue) fill(s *slot) bool {
	if s.n == 0 {
		j := q.front()
		if j == nil {
			return false
		}
		q.unlink(j)
		q.give(s, j)
	}
	took, ok := s.jobs[0].quick()
	q.setShort(s, ok)
	for all := took; ok && s.n < calls.Size; all += took {
		j := q.front()
		if j == nil {
			break
		}
		if took, ok = j.quick(); !ok || all+took > int64(longest) {
			break
		}
		q.unlink(j)
		q.give(s, j)
	}
	return true
}

// next removes the completed jobs of a slot and waits for its next ones. It returns false if the slot
// must end.
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

// leave removes the completed jobs of a slot. It returns false if the slot was replaced and must end.
func (q *queue) leave(s *slot) bool {
	if s.n == 0 {
		return true
	}
	used := time.Since(s.since) / time.Duration(s.n)
	for _, f := range s.flows[:s.n] {
		if f != nil { // nil: its job went back to the queue
			q.turns.End(f, used)
		}
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

// noteStuck counts the slot that runs the job as stuck, unless the call has ended, and takes back the
// slot's other jobs. It reports whether the caller must run another slot; noteStuck has added that slot to
// over.
func (q *queue) noteStuck(j *job, over *sync.WaitGroup) (replace bool) {
	q.mu.Lock()
	var back []*job
	var slow *slot
	for s := range q.busy {
		is := false
		s.runs(func(runs *job) { is = runs == j })
		if s.stuck || !is {
			continue
		}
		slow, back = s, s.takeBack()
		s.stuck = true
		q.stuck++
		q.free--
		if q.spare > 0 && !q.closed {
			q.spare--
			q.free++
			s.replaced = true
			over.Add(1) // The stuck slot is in busy, so over is not 0 here.
			replace = true
		}
		break
	}
	q.mu.Unlock()
	if slow != nil {
		q.putBack(slow, back)
	}
	return replace
}

// close refuses new jobs. Slots end when the waiting jobs are done.
func (q *queue) close() {
	q.mu.Lock()
	idle := q.idle
	q.idle = nil
	q.closed = true
	q.refuseOutside()
	q.free -= len(idle)
	q.mu.Unlock()
	for _, s := range idle {
		close(s.wake)
	}
}

// fail refuses all further jobs with an error. It returns the waiting jobs with their references.
func (q *queue) fail(err error) []*job {
	q.mu.Lock()
	if q.failure == nil {
		q.failure = err
	}
	q.refuseOutside()
	q.mu.Unlock()
	return q.takeAll()
}

// counts returns the number of slots that take jobs, of stuck slots, and of waiting jobs.
func (q *queue) counts() (free, stuck, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.free, q.stuck, q.waiting
}

// runs returns the number of running calls, and the function and the age of the oldest.
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

// interruptAll asks all running calls to stop. It returns the jobs that slots have not begun, with
// references.
func (q *queue) interruptAll(cause error) (jobs []*job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := range q.busy {
		jobs = append(jobs, s.unbegun()...)
		s.runs(func(j *job) { j.interrupt(cause) })
	}
	return jobs
}
