//go:build linux && cgo

package syclobj

/*
#cgo CFLAGS: -std=gnu11 -Wall
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "cpuqueues.h"
#include "objects.h"
#include "usmb_sycl.h"
#include "place.h"

// Defines go_name, which calls a function with the address of a pointer p and returns p and the code by value, so
// that no address of a Go variable is passed to C.
typedef struct { void *p; int err; } usmb_ptr;
#define BY_VALUE(name, type, parameters, call) \
	static usmb_ptr go_##name parameters { \
		type *p = NULL; \
		int err = call; \
		return (usmb_ptr){p, err}; \
	}
BY_VALUE(place_for, usmb_place, (uintptr_t ctx, uintptr_t queue, uintptr_t lo, uintptr_t hi),
	usmb_sycl_place_for((void *)ctx, (void *)queue, (void *)lo, (void *)hi, &p))
BY_VALUE(place_in, usmb_place, (uintptr_t ctx, uintptr_t queue, uintptr_t lo, uintptr_t hi),
	usmb_sycl_place_in((void *)ctx, (void *)queue, (void *)lo, (void *)hi, &p))
BY_VALUE(dlpack_import, usmb_place, (int32_t id, uintptr_t lo, uintptr_t hi),
	usmb_sycl_dlpack_import(id, (void *)lo, (void *)hi, &p))
BY_VALUE(place_new, usmb_place, (void *queue, int32_t kind),
	usmb_sycl_place_new(queue, kind, &p))
BY_VALUE(alloc, void, (void *queue, uint32_t kinds, int32_t kind, size_t size, size_t align),
	usmb_sycl_alloc(queue, kinds, kind, size, align, &p))
BY_VALUE(barrier, void, (void *queue, void **deps, size_t n),
	usmb_sycl_barrier(queue, deps, n, &p))
BY_VALUE(memcpy, void, (void *queue, void *dst, void *src, size_t size, void **deps, size_t n),
	usmb_sycl_memcpy(queue, dst, src, size, deps, n, &p))
BY_VALUE(memset, void, (void *queue, void *dst, uint8_t value, size_t size, void **deps, size_t n),
	usmb_sycl_memset(queue, dst, value, size, deps, n, &p))
BY_VALUE(fill, void, (void *queue, void *dst, uint64_t low, uint64_t high, size_t width, size_t count, void **deps, size_t n),
	usmb_sycl_fill(queue, dst, (uint64_t[2]){low, high}, width, count, deps, n, &p))
BY_VALUE(prefetch, void, (void *queue, void *ptr, size_t size, void **deps, size_t n),
	usmb_sycl_prefetch(queue, ptr, size, deps, n, &p))
BY_VALUE(queue_new, void, (void *ctx, void *device, int in_order, int profiling),
	usmb_sycl_queue_new(ctx, device, in_order, profiling, &p))
BY_VALUE(context_new, void, (void **devices, size_t n),
	usmb_context_new(devices, n, &p))
BY_VALUE(context_devices, void, (void *ctx),
	usmb_context_devices(ctx, &p))
BY_VALUE(device_split, void, (void *device, size_t *counts, size_t n, int domain),
	usmb_device_split(device, counts, n, domain, &p))
BY_VALUE(device_select, void, (const char *filter),
	usmb_device_select(filter, &p))

#cgo noescape go_barrier
#cgo noescape go_memcpy
#cgo noescape go_memset
#cgo noescape go_fill
#cgo noescape go_prefetch
#cgo nocallback go_place_for
#cgo nocallback go_place_in
#cgo nocallback go_dlpack_import
#cgo nocallback go_place_new
#cgo nocallback go_alloc
#cgo nocallback go_barrier
#cgo nocallback go_memcpy
#cgo nocallback go_memset
#cgo nocallback go_fill
#cgo nocallback go_prefetch
#cgo nocallback usmb_sycl_free
#cgo nocallback usmb_sycl_event_done
#cgo nocallback usmb_sycl_event_state
*/
import "C"

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// These maps do not compile if a constant differs from its C counterpart: they would
// have the key false twice.
var _ = map[bool]string{
	false: "",
	ErrNoSYCL == C.USMB_SYCL_ENOLIB && ErrNil == C.USMB_SYCL_ENULL && ErrArgument == C.USMB_SYCL_EARG &&
		ErrNoHostMemory == C.USMB_SYCL_ENOMEM && ErrAllocation == C.USMB_SYCL_EALLOC && ErrNotUSM == C.USMB_SYCL_ENOTUSM &&
		ErrOverrun == C.USMB_SYCL_EOVERRUN && ErrNoDevice == C.USMB_SYCL_ENODEVICE && ErrDeviceID == C.USMB_SYCL_EDEVICEID &&
		ErrNotDefault == C.USMB_SYCL_ENOTDEFAULT && ErrNoIndex == C.USMB_SYCL_ENOINDEX && ErrUnsupportedUSM == C.USMB_SYCL_EKIND &&
		ErrFailed == C.USMB_SYCL_EFAILED && ErrAsync == C.USMB_SYCL_EASYNC && ErrNoCUDA == C.USMB_SYCL_ENOCUDA &&
		ErrCapture == C.USMB_SYCL_ECAPTURE && ErrCapture+1 == C.USMB_SYCL_NERRORS: "codes",
}

var _ = map[bool]string{
	false: "",
	sortPlatform == C.USMB_LIVE_PLATFORM && sortDevice == C.USMB_LIVE_DEVICE && sortContext == C.USMB_LIVE_CONTEXT &&
		sortQueue == C.USMB_LIVE_QUEUE && sortEvent == C.USMB_LIVE_EVENT && sortPlace == C.USMB_LIVE_PLACE &&
		sortAllocation == C.USMB_LIVE_ALLOCATION && sortProgram == C.USMB_LIVE_PROGRAM &&
		sortKernel == C.USMB_LIVE_KERNEL && sortCount == C.USMB_LIVE_SORTS: "sorts",
}

var _ = map[bool]string{
	false: "",
	USMUnknown == C.USMB_USM_UNKNOWN && USMDevice == C.USMB_USM_DEVICE && USMShared == C.USMB_USM_SHARED &&
		USMHost == C.USMB_USM_HOST && dlpackCPU == C.USMB_DLPACK_CPU && eventPending == C.USMB_SYCL_EVENT_PENDING && eventComplete == C.USMB_SYCL_EVENT_COMPLETE && DefaultAlign == C.USMB_SYCL_DEFAULT_ALIGN: "kinds and constants",
}

// ref is a reference of the SYCL library.
type ref = unsafe.Pointer

type rootRow struct {
	device, context, queue ref // borrowed from the C table
	filter                 string
}

func tableOpen() Code { return Code(C.usmb_device_table_open()) }
func tableClose()     { C.usmb_device_table_close() }

// cpuQueues describes how queues of Intel's OpenCL driver for CPUs execute work; empty without that driver.
func cpuQueues() string {
	switch C.usmb_cpu_queues_set_up(0) { // set up by tableOpen
	case C.USMB_CPU_QUEUES_IN_ORDER:
		return "in-order"
	case C.USMB_CPU_QUEUES_LATE:
		return "in-order, except for queues that were created before usmbridge opened SYCL"
	case C.USMB_CPU_QUEUES_DRIVER:
		return "the driver's (USMBRIDGE_CPU_QUEUES=driver)"
	case C.USMB_CPU_QUEUES_UNKNOWN:
		return "the driver's (its table of functions has another form, or other code has changed it)"
	}
	return ""
}

func rootAt(i int) (rootRow, bool) {
	r := C.usmb_device_table_row(C.int32_t(i))
	if r == nil {
		return rootRow{}, false
	}
	return rootRow{device: r.device, context: r.context, queue: r.queue, filter: C.GoString(r.filter)}, true
}

func copyRef(sort refSort, r ref) ref {
	switch sort {
	case sortDevice:
		return C.usmb_sycl_device_copy(r)
	case sortContext:
		return C.usmb_sycl_context_copy(r)
	case sortQueue:
		return C.usmb_sycl_queue_copy(r)
	case sortEvent:
		return C.usmb_sycl_event_copy(r)
	}
	return nil
}

func deleteRef(sort refSort, r ref) {
	if r == nil {
		return
	}
	switch sort {
	case sortPlatform:
		C.usmb_platform_delete(r)
	case sortDevice:
		C.usmb_sycl_device_delete(r)
	case sortContext:
		C.usmb_sycl_context_delete(r)
	case sortQueue:
		C.usmb_sycl_queue_delete(r)
	case sortEvent:
		C.usmb_sycl_event_delete(r)
	case sortProgram, sortKernel:
		deleteKernelRef(sort, r)
	}
}

func equalRefs(sort refSort, a, b ref) bool {
	if a == nil || b == nil {
		return a == b
	}
	switch sort {
	case sortPlatform:
		return C.usmb_platform_equal(a, b) != 0
	case sortDevice:
		return C.usmb_sycl_device_equal(a, b) != 0
	case sortContext:
		return C.usmb_sycl_context_equal(a, b) != 0
	case sortQueue:
		return C.usmb_sycl_queue_equal(a, b) != 0
	}
	return false
}

// describe reads the description of a Device from the runtime.
func (d *Device) describe() {
	var f C.usmb_device_info
	C.usmb_device_describe(d.h.ref, &f)
	defer C.usmb_device_info_free(&f)
	d.info = DeviceInfo{
		Name: C.GoString(f.name), Vendor: C.GoString(f.vendor), DriverVersion: C.GoString(f.driver),
		Backend: Backend(f.backend), Type: DeviceType(f._type),
		GlobalMemSize: uint64(f.global_mem), MaxAllocSize: uint64(f.max_alloc),
		ComputeUnits: uint32(f.units), MaxSubDevices: uint32(f.max_subdevices),
		HasDouble: f.kinds&C.USMB_DEVICE_DOUBLE != 0,
	}
	d.kinds, d.root = uint32(f.kinds), int(f.root)
	if forgetsBlocks(&d.info) {
		C.usmb_usm_alone()
	}
}

func devicePlatform(r ref) ref { return C.usmb_device_platform(r) }
func deviceDefault() ref       { return C.usmb_device_default() }

func deviceSelect(filter string) (ref, Code) {
	text := C.CString(filter)
	defer C.free(unsafe.Pointer(text))
	r := C.go_device_select(text)
	return r.p, Code(r.err)
}

func deviceSplit(device ref, counts []uint, n uint, domain int) ([]ref, Code) {
	var list *C.size_t
	if counts != nil {
		sizes := make([]C.size_t, len(counts))
		for i, c := range counts {
			sizes[i] = C.size_t(c)
		}
		list = &sizes[0]
	}
	r := C.go_device_split(device, list, C.size_t(n), C.int(domain))
	if r.err != 0 {
		return nil, Code(r.err)
	}
	return takeDevices(r.p)
}

// takeDevices returns all devices of a vector, or none.
func takeDevices(vector unsafe.Pointer) ([]ref, Code) {
	refs := make([]ref, C.usmb_devices_len(vector)+1) // one more, so that &refs[0] exists
	C.usmb_devices_take(vector, &refs[0])
	refs = refs[:len(refs)-1]
	if !slices.Contains(refs, nil) {
		return refs, codeOK
	}
	for _, r := range refs {
		deleteRef(sortDevice, r)
	}
	return nil, ErrFailed
}

func describePlatform(r ref) PlatformInfo {
	var f C.usmb_platform_info
	C.usmb_platform_describe(r, &f)
	defer C.usmb_platform_info_free(&f)
	return PlatformInfo{Name: C.GoString(f.name), Vendor: C.GoString(f.vendor), Version: C.GoString(f.version), Backend: Backend(f.backend)}
}

func contextNew(devices []ref) (ref, Code) {
	r := C.go_context_new(&devices[0], C.size_t(len(devices)))
	return r.p, Code(r.err)
}

func contextDevices(ctx ref) ([]ref, Code) {
	r := C.go_context_devices(ctx)
	if r.err != 0 {
		return nil, Code(r.err)
	}
	return takeDevices(r.p)
}

func queueNew(ctx, device ref, inOrder, profiling bool) (ref, Code) {
	r := C.go_queue_new(ctx, device, cBool(inOrder), cBool(profiling))
	return r.p, Code(r.err)
}

// describe reads the description of a Queue from the runtime, and returns its context and device, which
// the caller owns.
func (q *Queue) describe() (ctx, device ref, code Code) {
	var f C.usmb_queue_info
	if err := C.usmb_queue_describe(q.h.ref, &f); err != 0 {
		return nil, nil, Code(err)
	}
	q.hash, q.kinds = uint64(f.hash), uint32(f.kinds)
	q.properties = OutOfOrder
	if f.in_order != 0 {
		q.properties = InOrder
	}
	if f.profiling != 0 {
		q.properties |= Profiling
	}
	return f.context, f.device, codeOK
}

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func eventWait(e ref) Code { return Code(C.usmb_sycl_wait_event(e)) }
func eventDone(e ref) bool { return C.usmb_sycl_event_done(e) != 0 }

func eventStateOf(e ref) eventState { return eventState(C.usmb_sycl_event_state(e)) }

func eventProfile(e ref) ([3]uint64, Code) {
	var t [3]C.uint64_t
	err := C.usmb_event_profile(e, &t[0])
	return [3]uint64{uint64(t[0]), uint64(t[1]), uint64(t[2])}, Code(err)
}

// submitWork submits one operation after the events of refs.
func submitWork(q ref, w *work, refs []ref) (ref, Code) {
	deps, n := unsafe.SliceData(refs), C.size_t(len(refs))
	var r C.usmb_ptr
	switch w.kind {
	case workBarrier:
		r = C.go_barrier(q, deps, n)
	case workMemcpy:
		r = C.go_memcpy(q, w.dst, w.src, C.size_t(w.n), deps, n)
	case workMemset:
		r = C.go_memset(q, w.dst, C.uint8_t(w.value), C.size_t(w.n), deps, n)
	case workFill:
		low, high := binary.NativeEndian.Uint64(w.pattern[:8]), binary.NativeEndian.Uint64(w.pattern[8:])
		r = C.go_fill(q, w.dst, C.uint64_t(low), C.uint64_t(high), C.size_t(w.width), C.size_t(w.n), deps, n)
	case workPrefetch:
		r = C.go_prefetch(q, w.dst, C.size_t(w.n), deps, n)
	}
	return r.p, Code(r.err)
}

func usmAlloc(q ref, kinds uint32, kind USMKind, size, align uintptr) (unsafe.Pointer, Code) {
	r := C.go_alloc(q, C.uint32_t(kinds), C.int32_t(kind), C.size_t(size), C.size_t(align))
	return r.p, Code(r.err)
}

func usmFree(ctx ref, p unsafe.Pointer) Code { return Code(C.usmb_sycl_free(ctx, p)) }

func placeNew(q ref, kind USMKind) (unsafe.Pointer, Code) {
	r := C.go_place_new(q, C.int32_t(kind))
	return r.p, Code(r.err)
}

func placeFor(ctx, q ref, lo, hi uintptr) (unsafe.Pointer, Code) {
	// References passed as integers skip cgo's check for Go pointers.
	r := C.go_place_for(C.uintptr_t(uintptr(ctx)), C.uintptr_t(uintptr(q)), C.uintptr_t(lo), C.uintptr_t(hi))
	return r.p, Code(r.err)
}

// placeIn is placeFor for a queue that is known to be of the context.
func placeIn(ctx, q ref, lo, hi uintptr) (unsafe.Pointer, Code) {
	r := C.go_place_in(C.uintptr_t(uintptr(ctx)), C.uintptr_t(uintptr(q)), C.uintptr_t(lo), C.uintptr_t(hi))
	return r.p, Code(r.err)
}

func placeForDLPack(id int32, lo, hi uintptr) (unsafe.Pointer, Code) {
	r := C.go_dlpack_import(C.int32_t(id), C.uintptr_t(lo), C.uintptr_t(hi))
	return r.p, Code(r.err)
}

func placeRelease(p unsafe.Pointer) { C.usmb_place_release((*C.usmb_place)(p)) }

func placeIdentity(p unsafe.Pointer) (id uint32, serial uint64) {
	c := (*C.usmb_place)(p)
	return uint32(c.id), uint64(c.serial)
}

func explainPlace(p *C.usmb_place) string {
	if p.dl_error == 0 {
		return ""
	}
	var text [256]C.char
	return C.GoString(C.usmb_place_explain(p, &text[0], C.size_t(len(text))))
}

func describePlace(p unsafe.Pointer) *Place {
	c := (*C.usmb_place)(p)
	return &Place{
		ref: p, why: explainPlace(c), serial: uint64(c.serial), refs: (*int64)(&c.refs),
		kind: USMKind(c.kind), dlType: int32(c.dl_type), dlID: int32(c.dl_id), dlErr: Code(c.dl_error),
		isDefault: c.default_context != 0, sub: c.is_subdevice != 0, root: int(c.root), kinds: uint32(c.kinds),
		filter: C.GoString(c.filter), context: c.context, device: c.device, queue: c.queue,
	}
}

func liveRefs() [sortCount]int64 {
	var c [C.USMB_LIVE_SORTS]C.int64_t
	C.usmb_sycl_live(&c[0])
	var out [sortCount]int64
	for i := range out {
		out[i] = int64(c[i])
	}
	return out
}

func queueHash(q ref) uint64 { return uint64(C.usmb_queue_hash(q)) }
