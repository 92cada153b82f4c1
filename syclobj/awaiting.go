package syclobj

import (
	"context"
	"sync"
	"time"
)

// awaiting polls the events of all cancellable waits with one goroutine. The runtime's own wait cannot be
// cancelled and would occupy one thread per waiter. A cancelled wait leaves nothing behind, whether or not
// the work completes.
var awaiting eventWaits

const (
	// The polling interval is an eighth of the duration of the most recent wait, within
	// these bounds. It is the maximum delay until a completion is noticed.
	minPoll = 20 * time.Microsecond
	maxPoll = 5 * time.Millisecond
	// pollBatch is the number of events per call of the library.
	pollBatch = 64
)

type eventWaits struct {
	mu      sync.Mutex
	events  []*awaited
	since   time.Time     // start of the most recent wait
	running bool          // the goroutine runs
	joined  chan struct{} // signals a new wait to it
}

// awaited is the wait for one event, shared by all its waiters.
type awaited struct {
	e     *Event
	ref   ref // in use until the wait ends
	users int
	at    int           // index in eventWaits.events
	taken bool          // its result is being read
	ended chan struct{} // closed when e is known to be complete
}

// wait waits for an event, whose use it takes over, or until ctx ends.
func (w *eventWaits) wait(ctx context.Context, e *Event, ref ref) error {
	own := w.join(e, ref)
	select {
	case <-own.ended:
		return e.result()
	case <-ctx.Done():
		w.giveUp(own)
		return ctx.Err()
	}
}

func (w *eventWaits) join(e *Event, ref ref) *awaited {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
	own := e.wait
	if own != nil {
		own.users++
		e.h.done()
	} else {
		own = &awaited{e: e, ref: ref, users: 1, at: len(w.events), ended: make(chan struct{})}
		e.wait = own
		w.events = append(w.events, own)
		liveWaiters.Add(1)
	}
	if w.running {
		select {
		case w.joined <- struct{}{}:
		default:
		}
		return own
	}
	w.running = true
	w.joined = make(chan struct{}, 1)
	go w.run(w.joined)
	return own
}

// giveUp removes one waiter, and the wait with the last one.
func (w *eventWaits) giveUp(own *awaited) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if own.users--; own.users == 0 && own.e.wait == own && !own.taken {
		w.remove(own)
	}
}

// remove ends a wait. The caller holds w.mu.
func (w *eventWaits) remove(own *awaited) {
	last := len(w.events) - 1
	w.events[own.at] = w.events[last]
	w.events[own.at].at = own.at
	w.events[last] = nil
	w.events = w.events[:last]
	own.e.wait = nil
	own.e.h.done()
	liveWaiters.Add(-1)
}

// run polls the events until no wait is left.
func (w *eventWaits) run(joined <-chan struct{}) {
	timer := time.NewTimer(minPoll)
	defer timer.Stop()
	for {
		start := time.Now()
		w.pollAll()
		pause, more := w.pause(time.Since(start))
		if !more {
			return
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-joined:
		}
	}
}

// pause returns the time until the next round, after one that took that long; false if there are no
// events.
func (w *eventWaits) pause(took time.Duration) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		w.running = false
		return 0, false
	}
	return max(min(max(time.Since(w.since)/8, minPoll), maxPoll), 4*took), true
}

// pollAll polls each event once.
func (w *eventWaits) pollAll() {
	var asked [pollBatch]*awaited
	var refs [pollBatch]ref
	var states [pollBatch]eventState
	for from := 0; ; from += pollBatch {
		n := w.take(from, asked[:], refs[:])
		if n == 0 {
			return
		}
		eventStates(refs[:n], states[:n])
		for i, own := range asked[:n] {
			// Release the use first: a waiter may check LiveObjects as soon as it returns.
			own.e.h.done()
			w.seen(own, states[i])
			asked[i] = nil
		}
	}
}

// take lists some of the events and uses each, so that it stays valid while it is polled. An event that
// changes its index meanwhile is polled in the next round.
func (w *eventWaits) take(from int, asked []*awaited, refs []ref) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, own := range w.events[min(from, len(w.events)):] {
		if n == len(asked) {
			break
		}
		if own.taken {
			continue
		}
		if _, ok := own.e.h.use(); ok {
			asked[n], refs[n] = own, own.ref
			n++
		}
	}
	return n
}

// seen ends the wait for a completed event. If the runtime does not report the state, the work has failed:
// the runtime's own wait then returns the failure. It should do so immediately; in case it blocks, it runs
// in its own goroutine.
func (w *eventWaits) seen(own *awaited, state eventState) {
	if state == eventPending {
		return
	}
	w.mu.Lock()
	gone := own.e.wait != own
	own.taken = true
	w.mu.Unlock()
	switch {
	case gone:
	case state == eventComplete:
		w.end(own)
	default:
		go w.end(own)
	}
}

// end reads the result of the work and wakes the waiters.
func (w *eventWaits) end(own *awaited) {
	own.e.settle(own.ref)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(own)
	close(own.ended)
}

// eventState is USMB_SYCL_EVENT_*.
type eventState uint8

const (
	eventPending eventState = iota
	eventComplete
)
