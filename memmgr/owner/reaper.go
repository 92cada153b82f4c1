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

func (r *reaper) drain() {
	for _, l := range r.lists() {
		if r.serves(l) {
			l.Drain()
		}
	}
}

func (r *reaper) idle() bool {
	for _, l := range r.lists() {
		if r.serves(l) && !l.Empty() {
			return false
		}
	}
	return true
}
