package owner

import (
	"sync"
	"sync/atomic"
)

// waker is usmb_waker.
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

// reaper drains lists when nobody else does.
type reaper struct {
	waker *waker
	lists func() []*List
	sleep func()
	// stopped is set for good by StopReaper; working is held while it drains.
	stopped atomic.Bool
	working sync.Mutex
}

// newReaper makes a reaper; its goroutine, run, is started once the lists it
// serves name it, and lives as long as the process, like them.
func newReaper(w *waker, lists func() []*List) *reaper {
	return &reaper{waker: w, lists: lists, sleep: openWaker(w)}
}

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
		// Armed first and looked second: whoever pushes after the look sees
		// the mark and signals.
		r.waker.armed.Store(1)
		if r.idle() {
			r.sleep()
		}
		r.waker.armed.Store(0)
	}
}

func (r *reaper) serves(l *List) bool { return l != nil && l.reap == r && !l.closed.Load() }

// StopReaper ends the work of the reaper that lists share, for good, and waits for
// what it has under way. It is for a process that is about to end through C's
// exit, whose destructors take down what the drain functions would call: cells
// that C drops afterwards are leaked. Releases and drains by Go go on as before,
// and lists with a goroutine of their own are not touched (see [List.Close]).
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
