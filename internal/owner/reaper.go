package owner

import (
	"sync"
	"sync/atomic"
	"time"
)

// waker has the layout of usmb_waker in usmb_owner.h.
type waker struct {
	armed atomic.Uint32
	fd    int32
}

// wake signals a reaper that sleeps or is about to.
func (w *waker) wake() {
	if w.armed.Load() != 0 && w.armed.Swap(0) != 0 {
		w.signal()
	}
}

// reaper is a goroutine that drains lists on which C has pushed cells.
type reaper struct {
	waker   *waker
	lists   func() []*List
	sleep   func()      // waits for a signal; nil while there is no descriptor for it
	stopped atomic.Bool // set by StopReaper
	working sync.Mutex  // held while it drains
}

// newReaper makes a reaper. The caller starts its goroutine, run, after the lists refer to it. The
// goroutine runs until the process ends.
func newReaper(w *waker, lists func() []*List) *reaper {
	return &reaper{waker: w, lists: lists, sleep: openWaker(w)}
}

// pollTime is the time between two drains by a reaper that has no descriptor to sleep on.
const pollTime = 100 * time.Millisecond

var commonReaper = sync.OnceValue(func() *reaper {
	r := newReaper(&ctl.waker, func() []*List {
		if table := lists.Load(); table != nil {
			return (*table)[1:]
		}
		return nil
	})
	go r.run()
	return r
})

func (r *reaper) run() {
	for {
		r.drain()
		if r.sleep == nil {
			time.Sleep(pollTime)
			r.sleep = openWaker(r.waker)
			continue // armed is set after the descriptor, which C reads after armed
		}
		// Set armed before checking the lists: a push after the check reads armed and signals.
		r.waker.armed.Store(1)
		if r.idle() {
			r.sleep()
		}
		r.waker.armed.Store(0)
	}
}

func (r *reaper) serves(l *List) bool { return l != nil && l.reap == r && !l.closed.Load() }

// StopReaper stops the shared reaper for good and waits for its drain in progress. Use it before the
// process ends by C's exit, whose destructors unload libraries that drain functions call. Cells that
// C drops afterwards are leaked. Releases and drains by Go still work. Lists with their own goroutine
// are not affected (see [List.Close]).
func StopReaper() {
	r := commonReaper()
	r.stopped.Store(true)
	r.working.Lock()
	defer r.working.Unlock()
}

func (r *reaper) drain() {
	r.working.Lock()
	defer r.working.Unlock()
	if r.stopped.Load() {
		return
	}
	for _, l := range r.lists() {
		if r.serves(l) {
			l.Drain()
		}
	}
}

func (r *reaper) idle() bool {
	if r.stopped.Load() {
		return true
	}
	for _, l := range r.lists() {
		if r.serves(l) && !l.empty() {
			return false
		}
	}
	return true
}
