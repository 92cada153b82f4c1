//go:build cgo && linux

package memmgr

/*
#cgo CFLAGS: -I${SRCDIR}/../syclobj
#include "usmb_sycl.h"
#cgo noescape usmb_sycl_events_done
#cgo nocallback usmb_sycl_events_done

static void go_event_copies(uintptr_t event, uintptr_t *out, size_t n) {
	for (size_t i = 0; i < n; i++) out[i] = (uintptr_t)usmb_sycl_event_copy((void *)event);
}
#cgo noescape go_event_copies
#cgo nocallback go_event_copies
*/
import "C"

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/syclobj"
)

// events orders work through the SYCL runtime. queue is the place's own, borrowed from the
// place that the resource retains; 0 if there is none.
type events struct {
	queue uintptr
}

// systemEvents is for cells without a resource: an event contains its context.
var systemEvents events

func (e events) on(queue uintptr) unsafe.Pointer {
	if queue == 0 {
		queue = e.queue
	}
	return foreignPointer(queue)
}

// EventDone implements Synchronizer.
func (events) EventDone(event uintptr) bool {
	return C.usmb_sycl_event_done(foreignPointer(event)) != 0
}

// unknown reports whether the runtime cannot tell the state of an event.
func (events) unknown(event uintptr) bool {
	e, state := foreignPointer(event), C.uint8_t(0)
	C.usmb_sycl_event_states(&e, 1, &state)
	return state == C.USMB_SYCL_EVENT_UNKNOWN
}

// EventsDone implements eventBatcher.
func (events) EventsDone(all []uintptr, done []bool) {
	if len(all) > 0 {
		// C's addresses in Go's memory: nothing in it for the collector.
		C.usmb_sycl_events_done((*unsafe.Pointer)(unsafe.Pointer(&all[0])), C.size_t(len(all)), (*C.uint8_t)(unsafe.Pointer(&done[0])))
	}
}

// ReleaseEvents implements eventBatcher.
func (events) ReleaseEvents(all []uintptr) {
	if len(all) > 0 {
		C.usmb_sycl_events_delete((*unsafe.Pointer)(unsafe.Pointer(&all[0])), C.size_t(len(all)))
	}
}

// WaitEvent implements Synchronizer.
func (events) WaitEvent(event uintptr) error {
	return syclError("wait for work on a buffer", C.usmb_sycl_wait_event(foreignPointer(event)))
}

// ReleaseEvent implements Synchronizer.
func (events) ReleaseEvent(event uintptr) { C.usmb_sycl_event_delete(foreignPointer(event)) }

// Barrier implements Synchronizer.
func (e events) Barrier(queue uintptr) (uintptr, error) {
	q := e.on(queue)
	if q == nil {
		return 0, nil
	}
	var event unsafe.Pointer
	code := C.usmb_sycl_barrier(q, nil, 0, &event)
	return uintptr(event), syclError("barrier", code)
}

// Join implements Synchronizer.
func (e events) Join(queue, a, b uintptr) (uintptr, error) {
	q := e.on(queue)
	if q == nil {
		return 0, &syclobj.OpError{Op: "join events", Err: syclobj.ErrNil}
	}
	// C memory's addresses in a Go array: nothing here for the collector.
	deps := [2]unsafe.Pointer{foreignPointer(a), foreignPointer(b)}
	var event unsafe.Pointer
	code := C.usmb_sycl_barrier(q, &deps[0], 2, &event)
	return uintptr(event), syclError("join events", code)
}

func syclError(op string, code C.int) error {
	if code == C.USMB_SYCL_OK {
		return nil
	}
	return &syclobj.OpError{Op: op, Err: syclobj.Code(code)}
}

// CopyEvent implements Synchronizer.
func (events) CopyEvent(event uintptr) uintptr { return copyEvent(event) }

// copyEvent returns an owned second reference of an event.
func copyEvent(event uintptr) uintptr {
	if event == 0 {
		return 0
	}
	return uintptr(C.usmb_sycl_event_copy(foreignPointer(event)))
}

// copyEvents fills out with owned references of an event, 0 where memory ran out.
func copyEvents(event uintptr, out []uintptr) {
	C.go_event_copies(C.uintptr_t(event), (*C.uintptr_t)(unsafe.Pointer(&out[0])), C.size_t(len(out)))
}

// copyQueueRef returns an owned second reference of a queue, 0 if memory ran out.
func copyQueueRef(queue uintptr) uintptr {
	return uintptr(C.usmb_sycl_queue_copy(foreignPointer(queue)))
}

func deleteQueueRef(queue uintptr) { C.usmb_sycl_queue_delete(foreignPointer(queue)) }

func equalQueueRefs(a, b uintptr) bool {
	return C.usmb_sycl_queue_equal(foreignPointer(a), foreignPointer(b)) != 0
}

// waitQueues waits for all work submitted to queues.
func waitQueues(all []uintptr) error {
	// C's addresses in Go's memory: nothing in it for the collector.
	return syclError("wait for work on a buffer", C.usmb_sycl_wait_queues((*unsafe.Pointer)(unsafe.Pointer(&all[0])), C.size_t(len(all))))
}

// orderQueue makes later work of a queue start after an event, 0 for none, and after all work on other
// queues.
func orderQueue(queue, event uintptr, others []uintptr) error {
	var first *unsafe.Pointer
	if len(others) > 0 {
		first = (*unsafe.Pointer)(unsafe.Pointer(&others[0]))
	}
	return syclError("order a queue after work on a buffer", C.usmb_sycl_order(foreignPointer(queue), foreignPointer(event), first, C.size_t(len(others))))
}

// ownQueue returns the queue of a place (usmb_place), borrowed; 0 for plain host memory.
func ownQueue(place uintptr) uintptr {
	if place == 0 {
		return 0
	}
	return uintptr((*C.usmb_place)(foreignPointer(place)).queue)
}

// showOwnQueue records that other libraries were shown the queue of a place, if it has one.
func showOwnQueue(place uintptr) {
	if ownQueue(place) == 0 {
		return
	}
	shown := (*int32)(&(*C.usmb_place)(foreignPointer(place)).shown)
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
	p := (*C.usmb_place)(foreignPointer(place))
	if atomic.LoadInt32((*int32)(&p.shown)) != 0 {
		all = append(all, uintptr(p.queue))
	}
	if other := atomic.LoadPointer((*unsafe.Pointer)(&p.other)); other != nil {
		all = append(all, uintptr(other))
	}
	return all
}

// shownToCUDA reports whether libraries of CUDA may have unreported work on memory of a place.
func shownToCUDA(place uintptr) bool {
	return place != 0 && atomic.LoadInt32((*int32)(&(*C.usmb_place)(foreignPointer(place)).cuda)) != 0
}

// cudaWork is the work of CUDA on the device of a place up to one moment. No event of SYCL completes with it.
// The zero value is no work. The owner keeps the place alive.
type cudaWork struct {
	place *C.usmb_place
	event unsafe.Pointer // owned
}

// recordCUDA returns the work of CUDA on the device of a place that may have been shown to libraries of CUDA.
// Only old drivers make it wait. An error means that the driver cannot record the work now.
func recordCUDA(place uintptr) (w cudaWork, err error) {
	if !shownToCUDA(place) {
		return w, nil
	}
	w.place = (*C.usmb_place)(foreignPointer(place))
	var event unsafe.Pointer
	err = syclError("record work of CUDA on a buffer", C.usmb_cuda_record(w.place, &event))
	w.event = event
	return w, err
}

// over reports whether the work has completed or failed, and then releases its event.
func (w *cudaWork) over() bool {
	if w.event != nil && C.usmb_cuda_event_done(w.place, w.event) == 0 {
		return false
	}
	w.drop()
	return true
}

// drop releases the event of work that may not be over.
func (w *cudaWork) drop() {
	if w.event != nil {
		C.usmb_cuda_event_delete(w.place, w.event)
		w.event = nil
	}
}

// waitCUDA waits for all work of CUDA on the device of such a place.
func waitCUDA(place uintptr) error {
	if !shownToCUDA(place) {
		return nil
	}
	return syclError("wait for work of CUDA on a buffer", C.usmb_cuda_wait((*C.usmb_place)(foreignPointer(place)), 0))
}

// placeShowsOther reports whether other libraries have seen another default queue of a place than its own.
func placeShowsOther(place uintptr) bool {
	return place != 0 && atomic.LoadPointer((*unsafe.Pointer)(&(*C.usmb_place)(foreignPointer(place)).other)) != nil
}

// placeQueue returns the queue of a place, borrowed.
func placeQueue(p *syclobj.Place) uintptr {
	if p.Ref() == nil {
		return 0
	}
	return uintptr((*C.usmb_place)(p.Ref()).queue)
}

// usmAlloc allocates in a place, on the place's own queue.
func usmAlloc(p *syclobj.Place, size, align uintptr) (uintptr, error) {
	c := (*C.usmb_place)(p.Ref())
	var out unsafe.Pointer
	code := C.usmb_sycl_alloc(c.queue, C.uint32_t(c.kinds), c.kind, C.size_t(size), C.size_t(align), &out)
	return uintptr(out), syclError("allocate", code)
}

func usmFree(p *syclobj.Place, address uintptr) error {
	c := (*C.usmb_place)(p.Ref())
	return syclError("free", C.usmb_sycl_free(c.context, foreignPointer(address)))
}

// eventRef returns an owned reference of an event, 0 when it is complete.
func eventRef(ev *syclobj.Event) uintptr {
	// The copy keeps the event alive while C copies its reference.
	own := ev.Copy()
	defer func() { _ = own.Close() }()
	return copyEvent(uintptr(own.Ref()))
}

// tryDiscard tests whether the pages of this resource's memory can be returned. Only the
// OpenCL device of a CPU allocates USM in private memory of the process; memory that another
// device maps must never lose its pages. The test checks that the pages go, that the runtime
// still reports the kind, and that copies on the queue still work.
func (r *usmResource) tryDiscard() error {
	if r.err != nil {
		return r.err
	}
	device, err := r.place.Device()
	if err != nil {
		return err
	}
	if info := device.Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
		return noPages("memory of %s is not memory of the process; only an OpenCL CPU device's is", r.place)
	}
	q, err := r.place.Queue()
	if err != nil {
		return err
	}
	const pages = 16
	size := pages * pageSize
	address, err := usmAlloc(r.place, size, pageSize)
	if err != nil {
		return err
	}
	defer func() { _ = usmFree(r.place, address) }() // it was allocated above
	at := foreignPointer(address)
	sample := bytes.Repeat([]byte("USM with pages. "), int(size)/16)
	if err := q.Write(at, sample); err != nil {
		return err
	}
	if err := discardPages(address, size); err != nil {
		return err
	}
	if n := residentBytes(address, size); n != 0 {
		return noPages("%d of %d bytes stayed resident after their pages were returned", n, size)
	}
	back := make([]byte, size)
	if err := q.Read(back, at); err != nil {
		return fmt.Errorf("reading memory whose pages were given back: %w", err)
	}
	if err := q.Write(at, sample); err != nil {
		return fmt.Errorf("writing memory whose pages were given back: %w", err)
	}
	if err := q.Read(back, at); err != nil {
		return err
	}
	if !bytes.Equal(back, sample) {
		return noPages("memory whose pages were given back does not store data any more")
	}
	return r.stillUSM(address, size)
}

// stillUSM checks that the runtime reports the memory as before.
func (r *usmResource) stillUSM(address, size uintptr) error {
	own := (*C.usmb_place)(r.place.Ref())
	var found *C.usmb_place
	code := C.usmb_sycl_place_for(own.context, own.queue, foreignPointer(address), foreignPointer(address+size), &found)
	if err := syclError("read the kind of memory whose pages were given back", code); err != nil {
		return err
	}
	defer C.usmb_place_release(found)
	if found.kind != own.kind {
		return noPages("memory whose pages were given back is of kind %d instead of %d", found.kind, own.kind)
	}
	return nil
}
