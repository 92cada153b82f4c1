package order

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Other libraries submit work on memory that they were shown, and report no events. This file has the
// queues on which such work may be, and the order of other work behind it. They are
//
//   - the default queues of the place (usmb_place_show), for memory that was exported, imported or
//     shown without another queue;
//   - the other queues of the cell (queues.others), for memory that was shown or imported with a queue,
//     and for imported memory its queue of last use.
//
// Libraries of CUDA work on streams, for which SYCL has no events. Beside the work of the queues there is
// CUDAWork, that of all streams of a device. Waits and submissions wait for it (awaitCUDA). Releases of memory
// record it, and the memory is freed or reused when it is over. It does not replace Barriers on the queues, because
// SYCL holds work back behind host tasks.
//
// The record of an alias is that of the cell to which it refers.

// ShownFlags are the flags of memory that was given to other libraries.
const ShownFlags = owner.Exported | owner.Async | owner.OnQueues | owner.CUDA

// onDefault are the flags of memory on which other libraries may use the default queues of its place.
const onDefault = owner.Exported | owner.Imported | owner.Async

// SharedOnOwn is SharedOn for the place's own queue.
func SharedOnOwn(c *owner.Cell) {
	ShowOwnQueue(c.Place)
	if c.Flags()&owner.Async == 0 { // reading is cheaper than setting
		c.SetFlags(owner.Async)
	}
}

// mostOthers bounds the other queues of a cell: each costs a barrier at every access. Of the queues that
// a cell was shared on, the last ones are kept.
const mostOthers = 32

// endSurplus removes the oldest of the other queues of a cell if there are too many. The work submitted to it so
// far becomes pending work of the cell, or is waited for if barriers must not be pending. addingPending is not held.
func endSurplus(c *owner.Cell) {
	if queues.withOthers.Load() == 0 {
		return
	}
	queues.mu.Lock()
	others := queues.others[c]
	surplus := len(others) > mostOthers
	if surplus {
		queues.others[c] = slices.Clone(others[1:])
	}
	queues.mu.Unlock()
	if !surplus {
		return
	}
	defer releaseQueues(others[0])
	if !System.BarriersPend() {
		keepFailure(c, System.WaitQueues(others[:1]))
		return
	}
	event, err := System.Barrier(others[0])
	if err == nil && event != 0 {
		lockPending()
		err = joinPending(c, nil, event)
		addingPending.Unlock()
	}
	if err != nil {
		diag.Failed("Buffer.SharedOn", err)
	}
}

// hasRecorded reports whether recordedQueues may return queues of a cell.
func hasRecorded(c *owner.Cell) bool {
	flags := c.Flags()
	return flags&owner.OnQueues != 0 || flags&owner.Imported != 0 && c.Queue() != 0
}

// recordedQueues returns the queues of a cell, other than those of its place, on which other libraries may
// have unreported work. The caller ends their use with releaseQueues.
func recordedQueues(c *owner.Cell) (all []uintptr) {
	if !hasRecorded(c) {
		return nil
	}
	queues.mu.Lock()
	defer queues.mu.Unlock()
	all = slices.Clone(queues.others[c])
	if last := c.Queue(); c.Flags()&owner.Imported != 0 && !slices.Contains(all, last) {
		all = append(all, last)
	}
	all = slices.DeleteFunc(all, func(q uintptr) bool { return queues.byRef[q] == nil })
	for _, q := range all {
		queues.byRef[q].users++
	}
	return all
}

// sharedQueues returns all queues on which other libraries may have unreported work on the memory. The
// caller ends their use with releaseQueues, which ignores those of the place.
func sharedQueues(c *owner.Cell) []uintptr {
	all := recordedQueues(c)
	if c.Flags()&onDefault != 0 {
		all = append(all, shownQueues(c.Place)...)
	}
	return all
}

// awaitCUDA waits for unreported work of libraries of CUDA on the memory. It must not be called with locks held:
// this work may contain functions on the host that need them.
func awaitCUDA(ctx context.Context, c *owner.Cell) error {
	if c.Flags()&(onDefault|owner.CUDA) == 0 {
		return nil
	}
	if !ShownToCUDA(c.Place) {
		return nil
	}
	return Within(ctx, func() error { return waitCUDA(c.Place) })
}

// fencesOf returns the queues that have to take a barrier before seen memory of a dead cell is reused:
// first its queue of last use, 0 for the place's own queue.
func fencesOf(c *owner.Cell) []uintptr {
	last, shown := c.Queue(), shownQueues(c.Place)
	if own := ownQueue(c.Place); last == 0 && slices.Contains(shown, own) {
		shown = shown[1:]
	}
	all := []uintptr{last}
	if queues.withOthers.Load() != 0 {
		queues.mu.Lock()
		all = append(all, queues.others[c]...)
		queues.mu.Unlock()
	}
	return append(all, shown...)
}

// onlyOwnQueue reports whether other libraries can have unreported work on the place's own queue only.
func onlyOwnQueue(c *owner.Cell) bool {
	return !hasRecorded(c) && !placeShowsOther(c.Place) && !ShownToCUDA(c.Place)
}

// waitShared waits for unreported work of other libraries, and returns the first failure of the wait.
func waitShared(ctx context.Context, c *owner.Cell) error {
	var e earlier
	e.addShared(ctx, c)
	for _, event := range e.after {
		if err := awaitEvent(ctx, uintptr(event)); e.failed == nil {
			e.failed = err
		}
	}
	return e.failed
}

// Within calls a function that waits, and returns its error, or that of the context if that ends before; then the
// function runs on.
func Within(ctx context.Context, wait func() error) error {
	if ctx.Done() == nil {
		return wait()
	}
	defer ReleaseLock()()
	over := make(chan error, 1)
	go func() { over <- wait() }()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitUsedFor waits for the work of a library that computes for this one on the memory of a cell.
func waitUsedFor(ctx context.Context, c *owner.Cell) error {
	number := c.Used()
	if number == 0 {
		return nil
	}
	return Within(ctx, func() error { return waitUsed(number) })
}

// addShared adds events of unreported work of other libraries. Until the context ends, it waits for work of CUDA, and
// for all of this work if barriers must not be pending.
func (e *earlier) addShared(ctx context.Context, c *owner.Cell) {
	if err := awaitCUDA(ctx, c); err != nil {
		e.failed = errors.Join(e.failed, err)
		if ctx.Err() != nil {
			return
		}
	}
	all := sharedQueues(c)
	if e.record != nil && e.record.inOrder {
		all = slices.DeleteFunc(all, func(q uintptr) bool {
			same := q == e.record.ref || equalQueueRefs(q, e.record.ref)
			if same {
				releaseQueues(q)
			}
			return same
		})
	}
	if !System.BarriersPend() {
		e.failed = errors.Join(e.failed, Within(ctx, func() error {
			defer releaseQueues(all...)
			return System.WaitQueues(all)
		}))
		return
	}
	defer releaseQueues(all...)
	for _, q := range all {
		event, err := System.Barrier(q)
		if err != nil {
			e.failed = errors.Join(e.failed, err)
			continue
		}
		e.after = append(e.after, owner.Pointer(event))
	}
}

// SharedOn records that other libraries may submit work on the memory of a cell to q, which is not the own
// queue of the place, without reporting it.
func SharedOn(c *owner.Cell, q *syclobj.Queue) {
	rec, _ := retainQueue(q)
	if rec == nil {
		return
	}
	defer releaseQueues(rec.ref)
	c.SetFlags(owner.OnQueues)
	lockPending()
	queues.mu.Lock()
	if addOther(c, rec.ref) {
		rec.users++
	}
	queues.mu.Unlock()
	addingPending.Unlock()
	endSurplus(c)
}

// Behind makes later work of q start after all earlier work on the memory of a cell. If the runtime
// refuses the order, or q is nil or of the host, it waits for the work. The error is the failure of earlier
// work, or syclobj.ErrClosed.
func Behind(q *syclobj.Queue, c *owner.Cell) error {
	rec, err := retainQueue(q)
	switch {
	case err != nil:
		return err
	case rec == nil:
		return Wait(context.Background(), c, false)
	}
	defer releaseQueues(rec.ref)
	e := earlier{record: rec}
	e.add(c)
	waits := e.failed != nil || c.Flags()&owner.Failed != 0
	if !waits && !System.BarriersPend() {
		err = e.wait()
	} else if !waits && len(e.after) > 0 {
		last, err := barrier("order a queue after work on a buffer", owner.Pointer(rec.ref), e.after)
		System.ReleaseEvent(last)
		waits = err != nil
	}
	for _, event := range e.after {
		System.ReleaseEvent(uintptr(event))
	}
	if waits {
		return Wait(context.Background(), c, false)
	}
	return err
}

// SharedQueues returns owned references of the queues on which other libraries may have unreported work on
// the memory of a cell, except for the default queues of its place. ok is false if the runtime has no memory for the
// references: a part of the queues would lose the order of work on the others.
func SharedQueues(c *owner.Cell) (own []unsafe.Pointer, ok bool) {
	all := recordedQueues(c)
	defer releaseQueues(all...)
	for _, q := range all {
		ref := copyQueueRef(q)
		if ref == 0 {
			for _, q := range own {
				deleteQueueRef(uintptr(q))
			}
			return nil, false
		}
		own = append(own, owner.Pointer(ref))
	}
	return own, true
}
