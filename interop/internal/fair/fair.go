// Package fair decides which function runs next.
package fair

import (
	"slices"
	"time"
)

// Queue decides whose call begins next if calls of several functions wait: functions take turns, so that a slow one does
// not hold up the others. The zero value is ready. It is not safe for concurrent use.
//
// A function without running calls comes before one with some. Among those with as many, the one comes first whose calls
// will have used the least time after one more call, which is expected to take as long as the last ones (fair
// queueing by finish times). A function that was idle begins with the least time of those that are not, so that it
// gains nothing by having been idle. Of two with the same time, the one that was idle comes first.
type Queue[T any] struct {
	flows  map[string]*Flow[T]
	active []*Flow[T]    // those with waiting calls, in the order in which they began to wait
	floor  time.Duration // the time of the function that began last
}

// Flow is the calls of one function.
type Flow[T any] struct {
	Items T // of the owner: the waiting calls

	waiting, running int
	used             time.Duration
	expected         time.Duration // of the next call
}

// unknown is the expected time of a function that has not run.
const unknown = 100 * time.Millisecond

func (f *Flow[T]) finish() time.Duration { return f.used + f.expected }

// maxFlows is the number of functions above which those without calls are forgotten.
const maxFlows = 256

// Flow returns the flow of a function.
func (q *Queue[T]) Flow(function string) *Flow[T] {
	f := q.flows[function]
	if f != nil {
		return f
	}
	if q.flows == nil {
		q.flows = map[string]*Flow[T]{}
	}
	for name, f := range q.flows {
		if len(q.flows) >= maxFlows && f.waiting == 0 && f.running == 0 {
			delete(q.flows, name)
		}
	}
	f = &Flow[T]{expected: unknown}
	q.flows[function] = f
	return f
}

// Wait adds a waiting call to a flow.
func (q *Queue[T]) Wait(f *Flow[T]) {
	if f.waiting++; f.waiting > 1 {
		return
	}
	if f.running == 0 {
		least := q.floor
		for _, other := range q.active {
			least = min(least, other.used)
		}
		f.used = max(f.used, least)
	}
	q.active = append(q.active, f)
}

// Leave removes a waiting call: it begins, or it was given up.
func (q *Queue[T]) Leave(f *Flow[T]) {
	if f.waiting--; f.waiting == 0 {
		i := slices.Index(q.active, f)
		q.active = slices.Delete(q.active, i, i+1)
	}
}

// Next returns the flow whose first call begins next; nil if no call waits.
func (q *Queue[T]) Next() *Flow[T] {
	if len(q.active) == 0 {
		return nil
	}
	next := q.active[0]
	for _, f := range q.active[1:] {
		if f.running < next.running || f.running == next.running && f.finish() <= next.finish() {
			next = f
		}
	}
	return next
}

// Begin records that a call of the flow begins.
func (q *Queue[T]) Begin(f *Flow[T]) {
	f.running++
	q.floor = f.used
}

// End records that a call of the flow has ended. took is its time, 0 if it has not run.
func (q *Queue[T]) End(f *Flow[T], took time.Duration) {
	f.running--
	f.used += took
	switch {
	case took == 0:
	case f.expected == unknown:
		f.expected = took
	default:
		f.expected = (f.expected + took) / 2
	}
}
