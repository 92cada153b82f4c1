//go:build !cgo || !linux

package memmgr

import (
	"errors"

	"github.com/usmbridge/usmbridge/syclobj"
)

// events orders nothing: without cgo there is no SYCL, and host work is complete when it
// is submitted.
type events struct {
	queue uintptr
}

var systemEvents events

// EventDone implements Synchronizer.
func (events) EventDone(uintptr) bool { return true }

// WaitEvent implements Synchronizer.
func (events) WaitEvent(uintptr) error { return nil }

// ReleaseEvent implements Synchronizer.
func (events) ReleaseEvent(uintptr) {}

// Barrier implements Synchronizer.
func (events) Barrier(uintptr) (uintptr, error) { return 0, nil }

// Join implements Synchronizer.
func (events) Join(uintptr, uintptr, uintptr) (uintptr, error) { return 0, errors.ErrUnsupported }

// CopyEvent implements Synchronizer.
func (events) CopyEvent(uintptr) uintptr { return 0 }

// ReleaseEvents implements eventBatcher.
func (events) ReleaseEvents([]uintptr) {}

// cudaWork is no work.
type cudaWork struct{}

func (cudaWork) over() bool { return true }
func (cudaWork) drop()      {}

func copyEvent(uintptr) uintptr            { return 0 }
func copyEvents(uintptr, []uintptr)        {}
func deleteQueueRef(uintptr)               {}
func equalQueueRefs(uintptr, uintptr) bool { return false }
func copyQueueRef(uintptr) uintptr         { return 0 }
func waitQueues([]uintptr) error           { return nil }
func ownQueue(uintptr) uintptr             { return 0 }
func showOwnQueue(uintptr)                 {}
func shownQueues(uintptr) []uintptr        { return nil }
func shownToCUDA(uintptr) bool             { return false }
func waitCUDA(uintptr) error               { return nil }
func recordCUDA(uintptr) (cudaWork, error) { return cudaWork{}, nil }
func placeShowsOther(uintptr) bool         { return false }

func orderQueue(uintptr, uintptr, []uintptr) error { return errors.ErrUnsupported }

func placeQueue(*syclobj.Place) uintptr { return 0 }

func usmAlloc(*syclobj.Place, uintptr, uintptr) (uintptr, error) { return 0, errors.ErrUnsupported }

func usmFree(*syclobj.Place, uintptr) error { return errors.ErrUnsupported }

func eventRef(*syclobj.Event) uintptr { return 0 }

// tryDiscard has no SYCL memory to try.
func (r *usmResource) tryDiscard() error {
	if r.err != nil {
		return r.err
	}
	return noPages("built without SYCL")
}
