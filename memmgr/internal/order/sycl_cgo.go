//go:build cgo && linux

package order

/*
#cgo CFLAGS: -I${SRCDIR}/../../../syclobj
#include "usmb_sycl.h"
#cgo noescape usmb_sycl_events_done
#cgo nocallback usmb_sycl_events_done
#cgo noescape usmb_sycl_events_delete
#cgo nocallback usmb_sycl_events_delete
#cgo noescape usmb_sycl_barrier
#cgo nocallback usmb_sycl_barrier

static void go_event_copies(uintptr_t event, uintptr_t *out, size_t n) {
	for (size_t i = 0; i < n; i++) out[i] = (uintptr_t)usmb_sycl_event_copy((void *)event);
}
#cgo noescape go_event_copies
#cgo nocallback go_event_copies
*/
import "C"

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// EventDone implements Synchronizer.
func (Events) EventDone(event uintptr) bool {
	return C.usmb_sycl_event_done(owner.Pointer(event)) != 0
}

// hasEnded reports whether an event is done or its state is unknown, as after a failure.
func hasEnded(event uintptr) bool {
	return C.usmb_sycl_event_state(owner.Pointer(event)) != C.USMB_SYCL_EVENT_PENDING
}

// EventsDone implements batcher.
func (Events) EventsDone(all []uintptr, done []bool) {
	if len(all) > 0 {
		// The slice has addresses of C memory, which the garbage collector ignores.
		C.usmb_sycl_events_done((*unsafe.Pointer)(unsafe.Pointer(&all[0])), C.size_t(len(all)), (*C.uint8_t)(unsafe.Pointer(&done[0])))
	}
}

// ReleaseEvents implements batcher.
func (Events) ReleaseEvents(all []uintptr) {
	if len(all) > 0 {
		C.usmb_sycl_events_delete((*unsafe.Pointer)(unsafe.Pointer(&all[0])), C.size_t(len(all)))
	}
}

// WaitEvent implements Synchronizer.
func (Events) WaitEvent(event uintptr) error {
	return syclError("wait for work on a buffer", C.usmb_sycl_wait_event(owner.Pointer(event)))
}

// ReleaseEvent implements Synchronizer. It ignores 0.
func (Events) ReleaseEvent(event uintptr) {
	if event != 0 {
		C.usmb_sycl_event_delete(owner.Pointer(event))
	}
}

// BarriersPend implements waiter: usmb_sycl_barriers_pend.
func (Events) BarriersPend() bool { return C.usmb_sycl_barriers_pend() != 0 }

// WaitQueues waits until all work submitted to the queues, of which none is 0, is complete.
func (Events) WaitQueues(queues []uintptr) error {
	if len(queues) == 0 {
		return nil
	}
	// The slice has addresses of C memory, which the garbage collector ignores.
	code := C.usmb_sycl_wait_queues((*unsafe.Pointer)(unsafe.Pointer(&queues[0])), C.size_t(len(queues)))
	return syclError("wait for work of other libraries on a buffer", code)
}

// TryWaitQueues implements waiter.
func (Events) TryWaitQueues(queues []uintptr) (busy bool, err error) {
	if len(queues) == 0 {
		return false, nil
	}
	code := C.usmb_sycl_try_wait_queues((*unsafe.Pointer)(unsafe.Pointer(&queues[0])), C.size_t(len(queues)))
	if code == C.USMB_SYCL_BUSY {
		return true, nil
	}
	return false, syclError("wait for work of other libraries on a buffer", code)
}

// QueueEmpty implements emptier.
func (e Events) QueueEmpty(queue uintptr) bool {
	q := e.on(queue)
	return q == nil || C.usmb_sycl_queue_empty(q) != 0
}

// waitUsed waits for the work of a library that computes for this one: usmb_sycl_wait_used.
func waitUsed(number uint32) error {
	return syclError("wait for a computation on a buffer", C.usmb_sycl_wait_used(C.uint32_t(number)))
}

// ReleaseLock releases the lock of usmb_host_lock until acquire is called, if the goroutine's thread holds it.
func ReleaseLock() (acquire func()) {
	runtime.LockOSThread()
	released := C.usmb_sycl_release_lock()
	return func() {
		C.usmb_sycl_acquire_lock(released)
		runtime.UnlockOSThread()
	}
}

// barrier submits a barrier to a queue that waits for events, or for all earlier work of the queue if there are
// none, and precedes later work of the queue. It returns an owned event.
func barrier(op string, queue unsafe.Pointer, deps []unsafe.Pointer) (uintptr, error) {
	var event unsafe.Pointer
	if len(deps) == 0 {
		code := C.usmb_sycl_barrier(queue, nil, 0, &event)
		return uintptr(event), syclError(op, code)
	}
	code := C.usmb_sycl_barrier(queue, &deps[0], C.size_t(len(deps)), &event)
	return uintptr(event), syclError(op, code)
}

func syclError(op string, code C.int) error {
	if code == C.USMB_SYCL_OK {
		return nil
	}
	return &syclobj.OpError{Op: op, Err: syclobj.Code(code)}
}

// CopyEvent implements Synchronizer. The copy of 0 is 0.
func (Events) CopyEvent(event uintptr) uintptr {
	if event == 0 {
		return 0
	}
	return uintptr(C.usmb_sycl_event_copy(owner.Pointer(event)))
}

// copyEvents fills out with owned references of an event, 0 where memory ran out.
func copyEvents(event uintptr, out []uintptr) {
	C.go_event_copies(C.uintptr_t(event), (*C.uintptr_t)(unsafe.Pointer(&out[0])), C.size_t(len(out)))
}

// copyQueueRef returns an owned second reference of a queue, 0 if memory ran out.
func copyQueueRef(queue uintptr) uintptr {
	return uintptr(C.usmb_sycl_queue_copy(owner.Pointer(queue)))
}

func deleteQueueRef(queue uintptr) { C.usmb_sycl_queue_delete(owner.Pointer(queue)) }

func equalQueueRefs(a, b uintptr) bool {
	return C.usmb_sycl_queue_equal(owner.Pointer(a), owner.Pointer(b)) != 0
}

// ownQueue returns the queue of a place (usmb_place), borrowed; 0 for plain host memory.
func ownQueue(place uintptr) uintptr {
	if place == 0 {
		return 0
	}
	return uintptr((*C.usmb_place)(owner.Pointer(place)).queue)
}

// ShowOwnQueue records that other libraries were shown the queue of a place, if it has one.
func ShowOwnQueue(place uintptr) {
	if ownQueue(place) == 0 {
		return
	}
	shown := (*int32)(&(*C.usmb_place)(owner.Pointer(place)).shown)
	if atomic.LoadInt32(shown) == 0 { // reading is cheaper than setting
		atomic.StoreInt32(shown, 1)
	}
}

// shownQueues returns the default queues of a place that other libraries have seen, borrowed: as
// usmb_place_shown, without a call of C.
func shownQueues(place uintptr) (all []uintptr) {
	if place == 0 {
		return nil
	}
	p := (*C.usmb_place)(owner.Pointer(place))
	if atomic.LoadInt32((*int32)(&p.shown)) != 0 {
		all = append(all, uintptr(p.queue))
	}
	if other := atomic.LoadPointer((*unsafe.Pointer)(&p.other)); other != nil {
		all = append(all, uintptr(other))
	}
	return all
}

// ShownToCUDA reports whether libraries of CUDA may have unreported work on memory of a place.
func ShownToCUDA(place uintptr) bool {
	return place != 0 && atomic.LoadInt32((*int32)(&(*C.usmb_place)(owner.Pointer(place)).cuda)) != 0
}

// waitCUDA waits for all work of CUDA on the device of such a place.
func waitCUDA(place uintptr) error {
	if !ShownToCUDA(place) {
		return nil
	}
	defer ReleaseLock()()
	return syclError("wait for work of CUDA on a buffer", C.usmb_cuda_wait((*C.usmb_place)(owner.Pointer(place)), 0))
}

// placeShowsOther reports whether other libraries have seen another default queue of a place than its own.
func placeShowsOther(place uintptr) bool {
	return place != 0 && atomic.LoadPointer((*unsafe.Pointer)(&(*C.usmb_place)(owner.Pointer(place)).other)) != nil
}
