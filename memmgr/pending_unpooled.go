package memmgr

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// lastWork is the work that has to finish before memory that is in no pool is freed.
type lastWork struct {
	sync   Synchronizer
	events []uintptr // owned
	fences []uintptr // queues that still have to take a barrier, held; 0 is the place's own queue
	cuda   cudaWork
	place  uintptr // the place whose work of CUDA still has to be recorded; 0: none
}

// lastWorkOf takes the pending work of a dead cell: its event, and for memory that other libraries were
// shown a barrier on each queue that they may have used and the work of CUDA, because they do not report their
// work.
func lastWorkOf(c *owner.Cell, s Synchronizer) (w lastWork) {
	w = workOf(c.SwapPending(0), s)
	if s == nil || c.Flags()&shownFlags == 0 {
		releaseQueues(takeOthers(c))
		if s != nil {
			w.dropDone()
		}
		return w
	}
	w.recordCUDA(c.Place)
	for _, q := range fencesOf(c) {
		if !w.takeBarrier(q) {
			retainQueueRef(q) // except for queues of the place, which the memory's resource keeps alive
			w.fences = append(w.fences, q)
		}
	}
	releaseQueues(takeOthers(c))
	w.dropDone()
	return w
}

// workOf returns the work of an event, which it takes; 0 is no event.
func workOf(event uintptr, s Synchronizer) lastWork {
	w := lastWork{sync: s}
	if event != 0 {
		w.events = []uintptr{event}
	}
	return w
}

// takeBarrier adds an event for all work on a queue, and reports whether the queue took the barrier.
// If not, the end of the consumers' work cannot be observed yet.
func (w *lastWork) takeBarrier(queue uintptr) bool {
	barrier, err := w.sync.Barrier(queue)
	if err != nil || barrier == 0 {
		return err == nil
	}
	if last := len(w.events) - 1; last >= 0 {
		// A resource that reuses memory by queue needs a single event.
		if joined, err := joinEvents(w.sync, queue, w.events[last], barrier, false); err == nil {
			w.sync.ReleaseEvent(w.events[last])
			w.sync.ReleaseEvent(barrier)
			w.events[last] = joined
			return true
		}
	}
	w.events = append(w.events, barrier)
	return true
}

// recordCUDA records the work of CUDA on a place, or stores the place if the driver refuses it.
func (w *lastWork) recordCUDA(place uintptr) {
	var err error
	if w.cuda, err = recordCUDA(place); err != nil {
		w.place = place
	}
}

// retake submits the barriers that are left.
func (w *lastWork) retake() {
	if place := w.place; place != 0 {
		w.place = 0
		w.recordCUDA(place)
	}
	w.fences = slices.DeleteFunc(w.fences, func(q uintptr) bool {
		taken := w.takeBarrier(q)
		if taken {
			releaseQueue(q)
		}
		return taken
	})
}

// dropDone releases the events that are done.
func (w *lastWork) dropDone() {
	w.events = slices.DeleteFunc(w.events, func(event uintptr) bool {
		done := w.sync.EventDone(event)
		if done {
			w.sync.ReleaseEvent(event)
		}
		return done
	})
}

// fenced reports whether a queue still has to take a barrier, or the work of CUDA has to be recorded.
func (w *lastWork) fenced() bool { return len(w.fences) > 0 || w.place != 0 }

// over reports whether all work has finished.
func (w *lastWork) over() bool { return !w.fenced() && len(w.events) == 0 && w.cuda.over() }

// unpooledFree is memory that is in no pool and was released with work pending.
type unpooledFree struct {
	work  lastWork
	stamp uint64
	run   func() // frees the memory

	inHand   bool // a goroutine looks at it, without keeper.mu
	reported bool
	probed   bool // see probeTime
}

// look runs the free if its work has finished, and reports whether it did.
func (d *unpooledFree) look() bool {
	d.work.retake()
	d.work.dropDone()
	if !d.work.over() {
		return false
	}
	d.run()
	return true
}

// report reports once that the free may never happen.
func (d *unpooledFree) report() {
	if d.reported {
		return
	}
	d.reported = true
	err := errStalled
	if d.work.fenced() {
		err = errNoBarrier
	}
	backgroundFailed("Buffer.Release", &OpError{Op: "Buffer.Release", Err: fmt.Errorf("memory waits for work on the device: %w", err)})
}

var errNoBarrier = errors.New("its queue refuses barriers, so the end of its consumers' work cannot be observed")

// unpooled holds the frees that no pool handles, those of [FreeAfter] for example. The keeper looks
// at a portion of them at a time; keeper.mu guards it.
type unpooled struct {
	stallClock
	waiting []*unpooledFree // the next one to look at is the first
	stalled []*unpooledFree // and those with a refused barrier; looked at by each tick
	inHand  int             // frees that goroutines look at without keeper.mu
}

func (w *unpooled) count() int { return len(w.waiting) + len(w.stalled) + w.inHand }

// put adds a free to its list.
func (w *unpooled) put(d *unpooledFree) {
	if d.work.fenced() || w.isLate(d.stamp) {
		w.stalled = append(w.stalled, d)
		return
	}
	w.waiting = append(w.waiting, d)
}

// after runs f once the work, which it takes, has finished. It does not wait.
func (k *keeperState) after(w lastWork, f func()) {
	d := &unpooledFree{work: w, run: f}
	if w.fenced() {
		d.report()
	}
	k.mu.Lock()
	d.stamp = k.next()
	k.put(d)
	k.start()
	k.mu.Unlock()
}

// finishSome runs frees of a list whose work has finished. vain bounds the frees it looks at whose
// work has not.
func (k *keeperState) finishSome(from *[]*unpooledFree, vain int) {
	k.mu.Lock()
	vain = min(vain, len(*from))
	k.mu.Unlock()
	for vain > 0 {
		frees := k.takeSome(from, min(vain, mostBatch))
		if len(frees) == 0 {
			return
		}
		vain -= k.lookAt(frees)
	}
}

// takeSome takes frees out of a list for lookAt.
func (k *keeperState) takeSome(from *[]*unpooledFree, n int) []*unpooledFree {
	k.mu.Lock()
	defer k.mu.Unlock()
	n = min(n, len(*from))
	frees := append([]*unpooledFree(nil), (*from)[:n]...)
	for _, d := range frees {
		d.inHand = true
	}
	clear((*from)[:n])
	*from = (*from)[n:]
	k.inHand += n
	return frees
}

// lookAt runs the frees whose work has finished and puts the others back. It returns their number.
func (k *keeperState) lookAt(frees []*unpooledFree) int {
	later := frees[:0]
	for _, d := range frees {
		if !d.look() {
			later = append(later, d)
		}
	}
	k.mu.Lock()
	late := k.late
	k.mu.Unlock()
	for _, d := range later {
		if d.work.fenced() || d.stamp <= late {
			d.report()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inHand -= len(frees)
	for _, d := range later {
		d.inHand = false
		k.put(d)
	}
	k.handled.Broadcast()
	return len(later)
}

// flush waits until all frees have run, including those that frees add, but not for stalled ones
// beyond the probes.
func (k *keeperState) flush() {
	k.stallUntil(0) // so that those that are late already are not waited for
	awaitWork(k)
	k.finishSome(&k.stalled, math.MaxInt)
}

// lastStamp implements pendingWork.
func (k *keeperState) lastStamp() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stamp
}

// stallUntil implements pendingWork.
func (k *keeperState) stallUntil(stamp uint64) {
	k.mu.Lock()
	k.late = max(k.late, stamp)
	k.mu.Unlock()
	k.finishSome(&k.waiting, math.MaxInt)
}

// awaitNext implements pendingWork.
func (k *keeperState) awaitNext(stalled bool, most time.Duration) awaited {
	k.mu.Lock()
	d := k.nextAwaited(stalled)
	if d == nil {
		k.mu.Unlock()
		return nothingPending
	}
	n, s := len(k.waiting), d.work.sync
	over := len(d.work.events) == 0 && d.work.cuda.over() // another goroutine has waited for them
	event, mine := uintptr(0), uintptr(0)
	if len(d.work.events) > 0 {
		event = d.work.events[0]
		mine = s.CopyEvent(event)
	}
	k.mu.Unlock()
	if !over {
		if mine == 0 { // work of CUDA, or no memory for a copy: poll
			time.Sleep(min(most, longPoll))
		}
		over = awaitEvent(s, mine, most)
	}
	k.mu.Lock()
	ended := over && event != 0 && !d.inHand && len(d.work.events) > 0 && d.work.events[0] == event
	if ended { // goroutines that wait for the work itself get its failure
		d.work.events = d.work.events[1:]
	}
	k.mu.Unlock()
	if ended {
		s.ReleaseEvent(event)
	}
	if !stalled {
		k.finishSome(&k.waiting, n)
	}
	if over {
		return workEnded
	}
	return workPending
}

// nextAwaited returns the first waiting free, or a stalled one that was not probed, which it marks
// as probed; nil if there is none. k.mu is held, and released while it waits for frees in hand.
func (k *keeperState) nextAwaited(stalled bool) *unpooledFree {
	if !stalled {
		for k.inHand > 0 {
			k.handled.Wait()
		}
		if len(k.waiting) == 0 {
			return nil
		}
		return k.waiting[0]
	}
	for _, d := range k.stalled {
		if !d.probed && len(d.work.events) > 0 {
			d.probed = true
			return d
		}
	}
	return nil
}
