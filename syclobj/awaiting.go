package syclobj

import (
	"context"
	"sync"
	"time"
)

// awaiting is what goroutines wait for that can give up: one goroutine asks the
// runtime for all of their events, because the runtime's own wait cannot be ended, and
// each would hold a thread. Who gives up leaves nothing behind, whatever becomes of
// the work.
var awaiting eventWaits

const (
	// An event is asked for again after an eighth of the time that the youngest wait
	// has taken so far, within these bounds: that much later at most it is seen.
	firstAsk = 20 * time.Microsecond
	lastAsk  = 5 * time.Millisecond
	// asksAtOnce is how many events go to the library in one call.
	asksAtOnce = 64
)

type eventWaits struct {
	mu      sync.Mutex
	events  []*awaited
	since   time.Time     // the youngest wait
	running bool          // the goroutine
	joined  chan struct{} // tells it of a new wait
}

// awaited is the wait for one event, shared by all who wait for it.
type awaited struct {
	e     *Event
	ref   ref // in use until the wait ends
	users int
	at    int           // in events
	taken bool          // is being asked for how it ended
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

// giveUp ends a user's part in a wait, and with the last one the wait.
func (w *eventWaits) giveUp(own *awaited) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if own.users--; own.users == 0 && own.e.wait == own && !own.taken {
		w.remove(own)
	}
}

// remove ends a wait. w.mu is held.
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

// run asks for the events until nobody waits any more.
func (w *eventWaits) run(joined <-chan struct{}) {
	timer := time.NewTimer(firstAsk)
	defer timer.Stop()
	for {
		start := time.Now()
		w.askAll()
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

// pause is the time until the next round, after one that took so long; without events
// there is none.
func (w *eventWaits) pause(took time.Duration) (time.Duration, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		w.running = false
		return 0, false
	}
	return max(min(max(time.Since(w.since)/8, firstAsk), lastAsk), 4*took), true
}

// askAll asks once for each event.
func (w *eventWaits) askAll() {
	var asked [asksAtOnce]*awaited
	var refs [asksAtOnce]ref
	var states [asksAtOnce]eventState
	for from := 0; ; from += asksAtOnce {
		n := w.take(from, asked[:], refs[:])
		if n == 0 {
			return
		}
		eventStates(refs[:n], states[:n])
		for i, own := range asked[:n] {
			// First, since who waits may count what is left as soon as it is told.
			own.e.h.done()
			w.seen(own, states[i])
			asked[i] = nil
		}
	}
}

// take lists some of the events, and uses each so that it is there while it is asked
// for. One that changes places meanwhile is asked for in the next round.
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

// seen ends the wait for an event that is done. Where the runtime does not tell the
// state, the work has failed: its own wait tells how, at once, or if it does not it
// holds up nobody but a goroutine of its own.
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

// end asks how the work ended and tells those who wait.
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
