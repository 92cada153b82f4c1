package memmgr

import (
	"context"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Package order has the order of device work on memory. The methods of this file check the handle.

// record returns the cell with the pending event and the queues of memory that is referenced,
// or panics.
func (b Buffer) record(op string) *owner.Cell { return b.live(op).Record() }

// Queue returns the reference (sycl::queue*) of the queue of last use, nil if none is recorded.
// The reference is borrowed: it is valid until the buffer is released or another queue is
// recorded.
func (b Buffer) Queue() unsafe.Pointer { return owner.Pointer(b.record("Queue").Queue()) }

// UsedOn records the queue of last use. If the queue is in-order, its work may reuse the memory
// immediately after release; if the memory was exported, after a barrier on the queue. Work that is
// pending from another queue is put before later work of this queue by a barrier. UsedOn ignores
// queues of the host and closed queues.
func (b Buffer) UsedOn(q *syclobj.Queue) { _ = order.SetPending(b.record("UsedOn"), q, nil) }

// SetPending records that work on the memory was submitted to q and that it ends with ev. ev must
// be an event of q, because other work on an in-order q is then ordered after it without a
// dependency. q is nil if ev is an event of another or of an unknown queue. The buffer retains the
// event. If an event is pending already, the buffer waits for both.
//
// [Buffer.Wait], the copies, [Buffer.Bytes] and the next SetPending return the failure of the work.
// If the memory is released before, no call reports a failure: call Wait first where it matters.
// Memory whose work has not completed ten seconds after the release counts as stalled
// (Stats.NumStalled). The pool checks it four times a second and reuses it when the work completes.
//
// The error is that of earlier recorded work which has failed, and which no later wait can report,
// or syclobj.ErrClosed if q is closed. ev is recorded in any case.
func (b Buffer) SetPending(q *syclobj.Queue, ev *syclobj.Event) error {
	return order.SetPending(b.record("SetPending"), q, ev)
}

// Pending reports whether recorded work on the memory has not finished.
func (b Buffer) Pending() bool { return order.Pending(b.record("Pending")) }

// PendingEvent returns an owned reference (sycl::event*) for C code of an event that completes with
// the work for which Wait waits; nil if there is none. PendingEvent waits itself for work for which the
// runtime gives no event, or no common event with the rest. The next Wait returns the failure of such work.
func (b Buffer) PendingEvent() unsafe.Pointer {
	return owner.Pointer(order.Event(b.record("PendingEvent")))
}

// Wait blocks until the work that SetPending recorded has finished, and all work on the queues with
// which other libraries were shown the memory (SharedOn). It returns the failure of the work.
func (b Buffer) Wait() error { return order.Wait(context.Background(), b.record("Wait"), false) }

// WaitContext is Wait, but returns when the context ends. The work itself continues.
func (b Buffer) WaitContext(ctx context.Context) error {
	return order.Wait(ctx, b.record("WaitContext"), false)
}

// WaitForOthers is Wait for a consumer that will work on the own queue of the memory's place. It may leave
// out unreported work on this queue, behind which the queue orders the work of the consumer.
func (b Buffer) WaitForOthers() error {
	return order.Wait(context.Background(), b.record("WaitForOthers"), true)
}

// SharedOn records that other libraries may submit work on the memory to q without reporting it. Later
// host accesses, copies, exports and launches come after the work on q, and so does the reuse of the
// memory. The buffer remembers the last 32 such queues; of older ones it orders the work that was
// submitted before they were forgotten. A nil queue is the own queue of the memory's place. SharedOn ignores
// queues of the host and closed queues.
func (b Buffer) SharedOn(q *syclobj.Queue) {
	c := b.record("SharedOn")
	if q == nil || placeOfCell(c).HasQueue(q) {
		order.SharedOnOwn(c)
		return
	}
	order.SharedOn(c, q)
}

// importedOn records that the owner of foreign memory that no other goroutine knows yet may have
// unreported work on q. Unlike SharedOn it adds no barrier to the end of the memory.
func (b Buffer) importedOn(q *syclobj.Queue, place *syclobj.Place) {
	c := b.ref.Cell()
	alias := c.Flags()&owner.Alias != 0
	switch own := place.HasQueue(q); {
	case own && alias:
		order.SharedOnOwn(c.Record())
	case own:
		order.ShowOwnQueue(c.Place)
	case alias:
		b.SharedOn(q)
	default:
		order.NoteQueue(c, q)
	}
}

// ExportOn gives the memory to a consumer that works on q: later work of q starts after all earlier
// work on the memory, and the memory is exported and shared on q (SetExported, SharedOn). If the runtime
// refuses the order, ExportOn waits for the work. The error is the failure of earlier work, or
// syclobj.ErrClosed; then nothing was recorded.
func (b Buffer) ExportOn(q *syclobj.Queue) error {
	if err := order.Behind(q, b.record("ExportOn")); err != nil {
		return err
	}
	b.SetExported()
	if q != nil {
		b.SharedOn(q)
	}
	return nil
}

// SharedQueues returns the queues (sycl::queue*) on which other libraries may have unreported work on
// the memory, except for the default queues of its place. The caller deletes them. The error is
// ErrOutOfMemory: then the runtime had no memory for the references.
func (b Buffer) SharedQueues() ([]unsafe.Pointer, error) {
	all, ok := order.SharedQueues(b.record("SharedQueues"))
	if !ok {
		return nil, opError("Buffer.SharedQueues", ErrOutOfMemory, "the runtime has no memory for another reference of a "+
			"queue; release memory and try again")
	}
	return all, nil
}

// Submission orders work that uses several buffers and that other code submits: it starts
// after the pending work of the buffers, and later uses of the buffers wait for it. Begin
// returns the events that the work must start after; End records the event of the work.
//
//	var s memmgr.Submission
//	event := submit(queue, s.Begin(queue, buffers))
//	err := s.End(event)
//
// Unlike [Buffer.SetPending] for each buffer, it joins no events: the work starts after the
// earlier events, so its own event replaces them. A Submission is for one goroutine at a
// time and may be used again after End. It allocates nothing on the Go heap for up to 32
// buffers. The caller must hold references to the buffers until End.
type Submission struct{ of order.Submission }

// Begin returns the events (sycl::event*) that work on the queue with these buffers must
// start after, besides the earlier work of the queue. The Submission owns the events; they
// are valid until End, which must follow. Begin panics with a UseError if a buffer was
// released. The queue must not be of the host backend, whose work is done when submitted.
func (s *Submission) Begin(q *syclobj.Queue, buffers []Buffer) []unsafe.Pointer {
	for _, b := range buffers {
		b.live("Submission.Begin")
	}
	s.of.Begin(q)
	for _, b := range buffers {
		s.of.Add(b.ref.Cell().Record())
	}
	return s.of.After()
}

// End records the event (sycl::event*) of the submitted work in the buffers and takes
// ownership of it. If nothing was submitted, event is nil and the buffers do not change. The
// error, as that of SetPending, is of earlier work that has failed; the event is recorded
// nevertheless.
func (s *Submission) End(event unsafe.Pointer) error { return s.of.End(event) }
