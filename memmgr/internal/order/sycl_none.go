//go:build !cgo || !linux

package order

import (
	"errors"

	"github.com/usmbridge/usmbridge/syclobj"
)

// Events orders nothing: without cgo there is no SYCL, and host work is complete when it
// is submitted.
type Events struct {
	queue uintptr
}

// System is for cells without a resource.
var System Events

// EventDone implements Synchronizer.
func (Events) EventDone(uintptr) bool { return true }

// WaitEvent implements Synchronizer.
func (Events) WaitEvent(uintptr) error { return nil }

// ReleaseEvent implements Synchronizer.
func (Events) ReleaseEvent(uintptr) {}

// Barrier implements Synchronizer.
func (Events) Barrier(uintptr) (uintptr, error) { return 0, nil }

// Join implements Synchronizer.
func (Events) Join(uintptr, uintptr, uintptr) (uintptr, error) { return 0, errors.ErrUnsupported }

// CopyEvent implements Synchronizer.
func (Events) CopyEvent(uintptr) uintptr { return 0 }

// ReleaseEvents implements batcher.
func (Events) ReleaseEvents([]uintptr) {}

// CUDAWork is no work.
type CUDAWork struct{}

// Over reports true.
func (CUDAWork) Over() bool { return true }

// Drop does nothing.
func (CUDAWork) Drop() {}

func copyEvent(uintptr) uintptr            { return 0 }
func copyEvents(uintptr, []uintptr)        {}
func deleteQueueRef(uintptr)               {}
func equalQueueRefs(uintptr, uintptr) bool { return false }
func copyQueueRef(uintptr) uintptr         { return 0 }
func waitQueues([]uintptr) error           { return nil }
func ownQueue(uintptr) uintptr             { return 0 }
func shownQueues(uintptr) []uintptr        { return nil }
func shownToCUDA(uintptr) bool             { return false }
func waitCUDA(uintptr) error               { return nil }
func placeShowsOther(uintptr) bool         { return false }

func orderQueue(uintptr, uintptr, []uintptr) error { return errors.ErrUnsupported }

func eventRef(*syclobj.Event) uintptr { return 0 }

// ShowOwnQueue does nothing: no place has a queue.
func ShowOwnQueue(uintptr) {}

// RecordCUDA returns no work.
func RecordCUDA(uintptr) (CUDAWork, error) { return CUDAWork{}, nil }

// EventsOf returns the order of a place.
func EventsOf(*syclobj.Place) Events { return Events{} }

func (Events) unknown(uintptr) bool { return false }
