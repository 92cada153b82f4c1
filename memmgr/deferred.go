package memmgr

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// lastWork is what memory waits for before it can go back: two events at most, and barriers
// that its queues have not taken yet.
type lastWork struct {
	sync   Synchronizer
	events [2]uintptr // owned, 0 for none
	fences []uintptr  // queues on which a barrier is still to be had, counted; 0 is the place's own
}

// lastWorkOf takes what the memory of a dead cell waits for: the event that was
// recorded, and for memory that was exported a barrier on each queue that it was shown on,
// because its consumers may have submitted work that nobody told us about.
func lastWorkOf(c *owner.Cell, s Synchronizer) (w lastWork) {
	w.sync = s
	w.events[0] = c.SwapPending(0)
	former := takeFormer(c)
	if s == nil {
		forgetQueues(former)
		return w
	}
	if q := c.Queue(); c.Flags()&owner.Exported != 0 && !w.takeBarrier(q) && (q == 0 || holdQueueRef(q)) {
		w.fences = append(w.fences, q)
	}
	for _, q := range former {
		if w.takeBarrier(q) {
			forgetQueue(q)
		} else {
			w.fences = append(w.fences, q)
		}
	}
	w.dropDone()
	return w
}

// takeBarrier adds an event for everything that is on the queue. Where the runtime refuses
// it, nothing tells when the consumer's work ends: then it is to be had later.
func (w *lastWork) takeBarrier(queue uintptr) bool {
	barrier, err := w.sync.Barrier(queue)
	if err != nil {
		return false
	}
	if barrier == 0 {
		return true
	}
	if w.events[0] == 0 {
		w.events[0] = barrier
		return true
	}
	joined, err := joinEvents(w.sync, queue, w.events[0], barrier, false)
	switch {
	case err == nil:
		w.sync.ReleaseEvent(w.events[0])
		w.sync.ReleaseEvent(barrier)
		w.events[0] = joined
	case w.events[1] == 0:
		w.events[1] = barrier // then both are looked at
	default:
		_ = w.sync.WaitEvent(barrier) // the last resort, and still right
		w.sync.ReleaseEvent(barrier)
	}
	return true
}

// retake asks again for the barriers that were refused.
func (w *lastWork) retake() {
	refused := w.fences
	w.fences = nil
	for _, q := range refused {
		if w.takeBarrier(q) {
			forgetQueue(q)
		} else {
			w.fences = append(w.fences, q)
		}
	}
}

// dropDone lets go of the events that are done.
func (w *lastWork) dropDone() {
	for i, event := range w.events {
		w.events[i] = dropIfDone(w.sync, event)
	}
	if w.events[0] == 0 {
		w.events[0], w.events[1] = w.events[1], 0
	}
}

// fenced tells whether a barrier is still to be had.
func (w *lastWork) fenced() bool { return len(w.fences) > 0 }

// over tells whether nothing is left to wait for.
func (w *lastWork) over() bool { return !w.fenced() && w.events[0] == 0 }

// single tells whether one event, or none, tells of everything.
func (w *lastWork) single() bool { return !w.fenced() && w.events[1] == 0 }

func dropIfDone(s Synchronizer, event uintptr) uintptr {
	if event != 0 && s.EventDone(event) {
		s.ReleaseEvent(event)
		return 0
	}
	return event
}

// deferredFree is memory of no pool that was released with work pending on it.
type deferredFree struct {
	work  lastWork
	since time.Time
	run   func()

	ended  uintptr // an event whose end somebody saw by waiting: of failed work none may tell
	held   bool    // in somebody's hand
	told   bool    // reported as stalled
	probed bool    // waited for although it has stalled
}

// look runs the free if its work is over, and reports that.
func (d *deferredFree) look() bool {
	d.work.retake()
	if d.ended != 0 {
		for i, event := range d.work.events {
			if event == d.ended {
				d.work.sync.ReleaseEvent(event)
				d.work.events[i] = 0
			}
		}
		d.ended = 0
	}
	d.work.dropDone()
	if !d.work.over() {
		return false
	}
	d.run()
	return true
}

// aside tells whether the free is to be looked at now and then only: it has waited
// for stallTime, or for a barrier that was refused.
func (d *deferredFree) aside(now time.Time) bool {
	return d.work.fenced() || now.Sub(d.since) >= stallTime
}

// tell reports a free that waits for what may never come, once.
func (d *deferredFree) tell() {
	if d.told {
		return
	}
	d.told = true
	err := errStalled
	if d.work.fenced() {
		err = errNoBarrier
	}
	backgroundFailed("Buffer.Release", &OpError{Op: "Buffer.Release", Err: fmt.Errorf("memory waits for work on the device: %w", err)})
}

var errNoBarrier = errors.New("its queue takes no barrier, by which alone the end of a consumer's work could be told")

// deferral is the part of the keeper that frees memory of no pool. Its frees are
// looked at in turn, a few at a time; keeper.mu guards it.
type deferral struct {
	waiting []*deferredFree // the next to look at first
	aside   []*deferredFree // for each tick
	inHand  int             // frees that somebody is looking at outside the lock
}

func (w *deferral) count() int { return len(w.waiting) + len(w.aside) + w.inHand }

// after runs f once the work, which it takes, is over. Release never waits; the
// keeper looks.
func (k *keeping) after(w lastWork, f func()) {
	d := &deferredFree{work: w, since: time.Now(), run: f}
	if w.fenced() {
		d.tell() // here, while nobody else has it
	}
	k.mu.Lock()
	k.keep(d, d.since)
	k.start()
	k.mu.Unlock()
}

// keep puts a free where it is looked at. k.mu is held.
func (k *keeping) keep(d *deferredFree, now time.Time) {
	if d.aside(now) {
		k.aside = append(k.aside, d)
		return
	}
	k.waiting = append(k.waiting, d)
}

// finishSome runs frees whose work is over, looking at so many in vain at most.
func (k *keeping) finishSome(vain int) {
	k.mu.Lock()
	vain = min(vain, len(k.waiting))
	k.mu.Unlock()
	for vain > 0 {
		frees := k.takeSome(&k.waiting, min(vain, mostBatch))
		if len(frees) == 0 {
			return
		}
		vain -= k.lookAt(frees)
	}
}

// finishAside looks once at each free that was put aside, and reports it.
func (k *keeping) finishAside() {
	k.mu.Lock()
	n := len(k.aside)
	k.mu.Unlock()
	for n > 0 {
		frees := k.takeSome(&k.aside, min(n, mostBatch))
		n -= len(frees)
		if len(frees) == 0 {
			return
		}
		k.lookAt(frees)
	}
}

// takeSome takes frees into the caller's hand.
func (k *keeping) takeSome(from *[]*deferredFree, n int) []*deferredFree {
	k.mu.Lock()
	defer k.mu.Unlock()
	n = min(n, len(*from))
	frees := append([]*deferredFree(nil), (*from)[:n]...)
	for _, d := range frees {
		d.held = true
	}
	clear((*from)[:n])
	*from = (*from)[n:]
	k.inHand += n
	return frees
}

// lookAt looks at frees in hand and puts back those that wait still; it returns how
// many.
func (k *keeping) lookAt(frees []*deferredFree) int {
	later := frees[:0]
	for _, d := range frees {
		if !d.look() {
			later = append(later, d)
		}
	}
	now := time.Now()
	for _, d := range later {
		if d.aside(now) {
			d.tell()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inHand -= len(frees)
	for _, d := range later {
		d.held = false
		k.keep(d, now)
	}
	k.handled.Broadcast()
	return len(later)
}

// flush waits until everything handed in has run, what that hands in included, but
// for what was put aside and does not end now.
func (k *keeping) flush() {
	for {
		k.mu.Lock()
		for k.inHand > 0 {
			k.handled.Wait()
		}
		n := len(k.waiting)
		var first *deferredFree
		if n > 0 {
			first = k.waiting[0]
		}
		k.mu.Unlock()
		if first == nil {
			break
		}
		if left := time.Until(first.since.Add(stallTime)); left > 0 {
			k.await(first, left)
		}
		k.finishSome(n)
	}
	k.probeAside()
	k.finishAside()
}

// probeAside waits for a moment for each free that was put aside, once: the wait
// tells the end of failed work, of which the runtime may never tell otherwise.
func (k *keeping) probeAside() {
	k.mu.Lock()
	aside := slices.Clone(k.aside)
	k.mu.Unlock()
	for lost := 0; len(aside) > 0 && lost < maxProbes; aside = aside[1:] {
		if !k.await(aside[0], probeTime) {
			lost++
		}
	}
}

// await waits for the first event of a free, which others may run meanwhile, and
// reports whether it ended in time.
func (k *keeping) await(d *deferredFree, most time.Duration) bool {
	k.mu.Lock()
	s, event := d.work.sync, d.work.events[0]
	aside := d.aside(time.Now())
	if d.held || event == 0 || aside && d.probed {
		k.mu.Unlock()
		return true
	}
	d.probed = aside
	mine := s.CopyEvent(event)
	k.mu.Unlock()
	over := awaitEvent(s, mine, most)
	k.mu.Lock()
	defer k.mu.Unlock()
	if over && !d.held && d.work.events[0] == event {
		// A failure of the work is told to those who wait for the work; here only
		// its end matters.
		d.ended = event
	}
	return over
}
