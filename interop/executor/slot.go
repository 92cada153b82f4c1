package executor

import (
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/python"
)

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
		s := &slot{next: make(chan *job, 1)}
		for j := q.next(s); j != nil; {
			j = e.serve(q, s, j)
		}
	}()
}

// Bounds of what a slot does at a stretch: with the GIL, and before it hands over results
// of calls that it has made. To wake a goroutine may wake a thread, which costs more than
// a short call; a wake for several costs that once.
const (
	stretch    = time.Millisecond
	mostWithin = 16
	longest    = 100 * time.Microsecond
)

// serve runs a job and those that wait behind it, on one thread and with the GIL held
// for a stretch. It returns the job to go on with, nil at the end of the slot.
func (e *Executor) serve(q *queue, s *slot, j *job) (next *job) {
	next = j
	h := &s.results
	defer h.flush()
	began := time.Now()
	err := e.py.With(func() error {
		for now := began; ; {
			if !j.state.CompareAndSwap(waiting, running) {
				// Its caller has gone, and told it.
			} else {
				if !h.empty() && !e.quick(j.function) {
					h.flush() // nobody waits for the length of a longer call besides
				}
				h.arm()
				result, err := e.call(j)
				after := time.Now()
				e.note(j.function, after.Sub(now))
				now = after
				e.finish(h, j, result, err)
			}
			h.flushOld(now)
			if now.Sub(began) > stretch {
				next = nil
				return nil
			}
			if next = q.more(s); next == nil {
				return nil
			}
			j = next
		}
	})
	if err != nil { // Python cannot be entered
		e.finish(h, j, nil, &Error{Function: j.function, Err: err})
	}
	h.flush()
	return q.next(s)
}

// handover is the jobs that are done and whose callers do not know yet. Its slot adds
// them; they are handed over by it, or by a timer where the next call is long after all.
type handover struct {
	mu    sync.Mutex
	jobs  [mostWithin]*job
	n     int
	since time.Time
	timer *time.Timer
	armed bool
}

// empty reports whether nobody waits; it is for the slot, which alone adds to it.
func (h *handover) empty() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n == 0
}

func (h *handover) add(j *job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == 0 {
		h.since = time.Now()
	}
	h.jobs[h.n] = j
	h.n++
}

// arm bounds the wait of those that are there by the length of a short call.
func (h *handover) arm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.n == 0 || h.armed:
		return
	case h.timer == nil:
		h.timer = time.AfterFunc(longest, h.flush)
	default:
		h.timer.Reset(longest)
	}
	h.armed = true
}

// flushOld is flush where as many are there as may be, or for as long.
func (h *handover) flushOld(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == mostWithin || h.n > 0 && now.Sub(h.since) > longest {
		h.handOver()
	}
}

func (h *handover) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handOver()
}

func (h *handover) handOver() {
	for i, j := range h.jobs[:h.n] {
		h.jobs[i] = nil
		close(j.ended)
	}
	h.n = 0
	if h.armed {
		h.timer.Stop() // one that has fired already hands over early what comes next
		h.armed = false
	}
}

// quick reports whether the calls of a function have been short of late.
func (e *Executor) quick(function string) bool {
	f, ok := e.functions.Load(function)
	return ok && f.(*callable).quick.Load()
}

// note remembers how long a call took.
func (e *Executor) note(function string, took time.Duration) {
	if f, ok := e.functions.Load(function); ok {
		c := f.(*callable)
		if quick := took < longest/4; c.quick.Load() != quick {
			c.quick.Store(quick)
		}
	}
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

// finish sets the result of a job, or drops it.
func (e *Executor) finish(h *handover, j *job, result any, err error) {
	e.count(err)
	j.result, j.err = result, err
	// One that Python refused is still waiting.
	if !j.state.CompareAndSwap(running, done) && !j.state.CompareAndSwap(waiting, done) {
		j.result, j.err = nil, nil
		release(result)
		return
	}
	h.add(j)
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

// call makes one call. The GIL is held.
func (e *Executor) call(j *job) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &python.PanicError{Value: v, Stack: string(debug.Stack())}
		}
		if err != nil {
			release(result)
			result, err = nil, &Error{Function: j.function, Err: err}
		}
	}()
	var c conversion
	defer c.release()
	args, err := c.arguments(e.py, j.args)
	if err != nil {
		return nil, err
	}
	close(j.read) // from here on they may change: an import may take longer than the caller waits
	f, err := e.function(j.function)
	if err != nil {
		return nil, err
	}
	o, err := f.CallContext(j.ctx, args...)
	late := c.written() // after an error too: the arguments are the caller's again
	if err != nil {
		return nil, err
	}
	defer o.Release()
	if late != nil {
		return nil, late
	}
	return fromPython(o)
}
