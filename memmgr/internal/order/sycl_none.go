//go:build !cgo || !linux

package order

import (
	"errors"
	"unsafe"
)

// Without cgo there is no SYCL, and host work is complete when it is submitted.

// EventDone implements Synchronizer.
func (Events) EventDone(uintptr) bool { return true }

// WaitEvent implements Synchronizer.
func (Events) WaitEvent(uintptr) error { return nil }

// CopyEvent implements Synchronizer.
func (Events) CopyEvent(uintptr) uintptr { return 0 }

// ReleaseEvent implements Synchronizer.
func (Events) ReleaseEvent(uintptr) {}

// ReleaseEvents implements batcher.
func (Events) ReleaseEvents([]uintptr) {}

func barrier(string, unsafe.Pointer, []unsafe.Pointer) (uintptr, error) {
	return 0, errors.ErrUnsupported
}

func copyEvents(uintptr, []uintptr)        {}
func deleteQueueRef(uintptr)               {}
func equalQueueRefs(uintptr, uintptr) bool { return false }
func hasEnded(uintptr) bool                { return true }
func copyQueueRef(uintptr) uintptr         { return 0 }
func ownQueue(uintptr) uintptr             { return 0 }
func shownQueues(uintptr) []uintptr        { return nil }
func waitCUDA(uintptr) error               { return nil }
func placeShowsOther(uintptr) bool         { return false }

// BarriersPend implements waiter.
func (Events) BarriersPend() bool { return true }

// WaitQueues waits until all work submitted to the queues is complete.
func (Events) WaitQueues([]uintptr) error { return nil }

// TryWaitQueues implements waiter.
func (Events) TryWaitQueues([]uintptr) (busy bool, err error) { return false, nil }

// QueueEmpty implements emptier.
func (Events) QueueEmpty(uintptr) bool { return true }

func waitUsed(uint32) error { return nil }

// ReleaseLock does nothing.
func ReleaseLock() (acquire func()) { return func() {} }

// ShowOwnQueue does nothing: no place has a queue.
func ShowOwnQueue(uintptr) {}

// ShownToCUDA reports false.
func ShownToCUDA(uintptr) bool { return false }
