//go:build cgo && linux

package pymodule

/*
#cgo CFLAGS: -O2 -Wall -Wextra -I${SRCDIR}/../python -I${SRCDIR}/../../dlpack -I${SRCDIR}/../../internal/owner -I${SRCDIR}/../../syclobj
#cgo LDFLAGS: -lm
#include <stdlib.h>
#include <string.h>
#include "create.h"
#include "sycl.h"
#include "exchange.h"
#include "module.h"
#include "order.h"
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"unsafe"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/interop/internal/goexit"
	"github.com/usmbridge/usmbridge/interop/internal/usminfo"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// These declarations compile only if the constants are equal in C.
var _ = [1]struct{}{}[int(segment.PeersWrite)-C.USMB_AUDIENCE_WRITE|int(segment.PeersRead)-C.USMB_AUDIENCE_READ]
var _ = [1]struct{}{}[kindValue-C.USMB_ERR_VALUE|kindType-C.USMB_ERR_TYPE|
	kindBuffer-C.USMB_ERR_BUFFER|kindMemory-C.USMB_ERR_MEMORY|kindRuntime-C.USMB_ERR_RUNTIME|kindOverflow-C.USMB_ERR_OVERFLOW|
	kindTimeout-C.USMB_ERR_TIMEOUT|kindConnection-C.USMB_ERR_CONNECTION|kindKey-C.USMB_ERR_KEY|kindReference-C.USMB_ERR_REFERENCE|
	kindRaised-C.USMB_ERR_RAISED]

// report writes an error to e and returns -1, or returns 0 if err is nil.
func report(e *C.usmb_goerr, err error) C.int {
	if err == nil {
		return 0
	}
	return reportKind(e, kindOf(err), err.Error())
}

func reportKind(e *C.usmb_goerr, k kind, text string) C.int {
	e.kind = C.int32_t(k)
	room := unsafe.Slice((*byte)(unsafe.Pointer(&e.message[0])), len(e.message))
	n := copy(room[:len(room)-1], text)
	room[n] = 0
	return -1
}

// running is the result of an exported function that has not returned.
const running = math.MinInt32

// begun marks the result of an exported function for guard.
func begun(r *C.int) *C.int {
	*r = running
	return r
}

// guard recovers a panic and reports it as an error, because a panic must not unwind through C. For the same reason
// it ends the program if a function of the program, such as that of SetResource, ended the goroutine.
func guard(e *C.usmb_goerr, r *C.int) {
	if p := recover(); p != nil {
		*r = reportKind(e, kindRuntime, fmt.Sprintf("usmbridge: internal panic: %v\n%s", p, debug.Stack()))
	} else if *r == running {
		goexit.End("usmbridge: a Go function called by an operation of Python (such as that of SetResource)")
	}
}

//export usmb_go_open
func usmb_go_open(e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	rt, err := openRuntime(true)
	if err != nil {
		return report(e, err)
	}
	if rt.HasSYCL() {
		return 1
	}
	return 0
}

//export usmb_go_paths
func usmb_go_paths(lines *C.char, n C.uint64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	readEnvironment()
	paths := strings.Split(text(lines, n), "\n")
	setPaths(paths)
	if err := configureDrivers(paths); err != nil {
		return report(e, fmt.Errorf("cannot register the OpenCL CPU driver; import usmbridge first: %w", err))
	}
	return 0
}

// readEnvironment updates the environment variables that the search for SYCL reads. Go copies
// the environment at the start of the process, but Python programs may set os.environ later.
func readEnvironment() {
	for _, name := range []string{syclobj.EnvLibrary, "VIRTUAL_ENV", "OCL_ICD_FILENAMES", "OCL_ICD_VENDORS"} {
		c := C.CString(name)
		now := C.getenv(c)
		C.free(unsafe.Pointer(c))
		was, set := os.LookupEnv(name)
		switch {
		case now == nil && set:
			_ = os.Unsetenv(name) // Unsetenv and Setenv cannot fail for these names.
		case now != nil && (!set || was != C.GoString(now)):
			_ = os.Setenv(name, C.GoString(now))
		}
	}
}

//export usmb_go_alloc
func usmb_go_alloc(req *C.usmb_alloc_req, out **C.usmb_cell, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	q, release, err := requestedQueue(req)
	if err != nil {
		return report(e, err)
	}
	defer release()
	if req.audience != 0 {
		buf, err := allocateShared(q, requestedKind(q, req), segment.Audience(req.audience), uintptr(req.bytes))
		if err != nil {
			return report(e, err)
		}
		*out = (*C.usmb_cell)(cells.Of(buf).Pointer())
		return 0
	}
	if req.arena == 0 && ownPool(q, requestedKind(q, req)) {
		req.shared = 1
	}
	return allocate(q, requestedKind(q, req), int64(req.bytes), req.arena != 0, out, e)
}

//export usmb_go_call_arena
func usmb_go_call_arena() (r C.int) {
	defer func() { _ = recover() }() // If a context of the program panics, there is no arena.
	if arena.FromContext(calling.Context()) != nil {
		return 1
	}
	return 0
}

//export usmb_go_is_at
func usmb_go_is_at(req *C.usmb_alloc_req, cell *C.usmb_cell, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	q, release, err := requestedQueue(req)
	if err != nil {
		return report(e, err)
	}
	defer release()
	there, err := resourceOn(q, requestedKind(q, req))
	if err != nil {
		return report(e, err)
	}
	if there.Place() == cells.Buffer(owner.CellOf(unsafe.Pointer(cell))).Place() {
		return 1
	}
	return 0
}

// requestedKind returns the kind of USM of a request. The default is shared USM, or device USM if
// the device has no shared USM.
func requestedKind(q *syclobj.Queue, req *C.usmb_alloc_req) syclobj.USMKind {
	switch {
	case req.kind != 0:
		return syclobj.USMKind(req.kind)
	case q.Device().Supports(syclobj.USMShared):
		return syclobj.USMShared
	}
	return syclobj.USMDevice
}

//export usmb_go_has_double
func usmb_go_has_double(req *C.usmb_alloc_req, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	q, release, err := requestedQueue(req)
	if err != nil {
		return report(e, err)
	}
	defer release()
	if q.Device().Info().HasDouble {
		return 1
	}
	return 0
}

//export usmb_go_copy
func usmb_go_copy(req *C.usmb_alloc_req, src *C.usmb_array, dtype C.usmb_dl_dtype, out **C.usmb_cell, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	q, release, err := requestedQueue(req)
	if err != nil {
		return report(e, err)
	}
	defer release()
	from, err := borrowed(src)
	if err != nil {
		return report(e, err)
	}
	to, err := memoryOn(q, requestedKind(q, req), req.arena != 0)
	if err != nil {
		return report(e, err)
	}
	a, err := copyOf(to, from, q, typeOf(dtype), req.padded != 0)
	if err != nil {
		return report(e, err)
	}
	defer a.Release() // C gets another reference, because an arena may own the array too.
	*out = (*C.usmb_cell)(cells.Of(a.Buffer().Retain()).Pointer())
	return 0
}

// allocate stores the cell of a new buffer in *out.
func allocate(q *syclobj.Queue, usm syclobj.USMKind, bytes int64, inArena bool, out **C.usmb_cell, e *C.usmb_goerr) C.int {
	r, err := memoryOn(q, usm, inArena)
	if err != nil {
		return report(e, err)
	}
	buf, err := memmgr.New(r, memmgr.Request{Size: uintptr(bytes), Queue: q, Tag: tag})
	if err != nil {
		return report(e, err)
	}
	*out = (*C.usmb_cell)(cells.Of(buf).Pointer())
	return 0
}

func nothing() {}

// requestedQueue returns the queue of a request. The caller calls release after use. A request
// for a kind of USM needs a SYCL device.
func requestedQueue(req *C.usmb_alloc_req) (q *syclobj.Queue, release func(), err error) {
	rt, err := openRuntime(false)
	if err != nil {
		return nil, nil, err
	}
	q, release, err = queueOf(rt, req)
	if err == nil && req.kind != 0 && q.IsHost() {
		release()
		return nil, nil, noUSM(rt, syclobj.USMKind(req.kind))
	}
	return q, release, err
}

// noUSM returns the error of a request for USM without a SYCL device.
func noUSM(rt *syclobj.Runtime, usm syclobj.USMKind) error {
	reason := rt.SYCLError()
	if lib := rt.Library(); lib != nil {
		reason = fmt.Errorf("%w: %s lists none (OpenCL drivers: %s)", syclobj.ErrNoDevice, lib.Path, lib.OpenCLDrivers)
	} else if site := sitePackages(); site != "" {
		reason = fmt.Errorf("%w; this Python has its packages in %s", reason, site)
	}
	return fmt.Errorf("usm_type=%q needs a SYCL device (omit usm_type to allocate host memory): %w", usm, reason)
}

func queueOf(rt *syclobj.Runtime, req *C.usmb_alloc_req) (q *syclobj.Queue, release func(), err error) {
	switch {
	case req.form == C.USMB_FORM_QUEUE:
		q, err = rt.QueueFromRef(req.ref)
		if err != nil {
			return nil, nil, err
		}
		return q, func() { _ = q.Close() }, nil
	case req.form == C.USMB_FORM_CONTEXT:
		return queueOfContext(rt, req.ref)
	case req.host != 0:
		return rt.HostQueue(), nothing, nil
	case req.filter != nil:
		d, err := rt.Device(text(req.filter, req.nfilter))
		if err != nil {
			return nil, nil, err
		}
		q, err = d.DefaultQueue()
		return q, nothing, err
	}
	return rt.DefaultQueue(), nothing, nil
}

// queueOfContext returns a new queue on the first device of a context.
func queueOfContext(rt *syclobj.Runtime, ref unsafe.Pointer) (*syclobj.Queue, func(), error) {
	ctx, err := rt.ContextFromRef(ref)
	if err != nil {
		return nil, nil, err
	}
	q, release, err := usmarray.QueueOn(rt, usmarray.SyclObj{Context: ctx})
	if err != nil {
		_ = ctx.Close()
		return nil, nil, err
	}
	return q, func() { release(); _ = ctx.Close() }, nil
}

// text copies a C string of n bytes, which may lack a terminator.
func text(p *C.char, n C.uint64_t) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(p)), n))
}

// view returns a C string of n bytes without a copy. It is valid for the duration of the call.
func view(p *C.char, n C.uint64_t) string {
	return unsafe.String((*byte)(unsafe.Pointer(p)), n)
}

//export usmb_go_alloc_for
func usmb_go_alloc_for(deviceType, deviceID C.int32_t, bytes C.int64_t, out **C.usmb_cell, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	rt, err := openRuntime(deviceType == C.USMB_DL_ONEAPI)
	if err != nil {
		return report(e, err)
	}
	switch deviceType {
	case C.USMB_DL_CPU:
		return allocate(rt.HostQueue(), syclobj.USMUnknown, int64(bytes), true, out, e)
	case C.USMB_DL_ONEAPI:
		d, err := rt.RootDevice(int32(deviceID))
		if err != nil {
			return report(e, err)
		}
		q, err := d.DefaultQueue()
		if err != nil {
			return report(e, err)
		}
		return allocate(q, syclobj.USMDevice, int64(bytes), true, out, e)
	}
	return reportKind(e, kindBuffer, fmt.Sprintf("usmbridge allocates on kDLCPU (1) and kDLOneAPI (14), not on device (%d, %d)", deviceType, deviceID))
}

//export usmb_go_suai
func usmb_go_suai(in *C.usmb_suai_in, out *C.usmb_suai_out, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	d := usmarray.USMInterface{
		Shape:    ints(in.shape, in.ndim),
		TypeStr:  view(in.typestr, in.ntypestr),
		Data:     uintptr(in.data),
		ReadOnly: in.readonly != 0,
		Strides:  ints(in.strides, in.ndim),
		Offset:   int(in.offset),
		Version:  usmarray.InterfaceVersion,
	}
	if in.nfields != 0 {
		d.TypeDescr = fields(in)
	}
	if in.owner_size != ^C.uint64_t(0) {
		d.Allocation = usmarray.Extent{Base: uintptr(in.owner), Size: uintptr(in.owner_size)}
	}
	span, err := d.Check()
	if err != nil {
		return report(e, err)
	}
	out.first = C.uint64_t(span.First)
	out.lo, out.hi = C.uint64_t(span.Lo), C.uint64_t(span.Hi)
	out.dtype = cType(span.DataType)
	return 0
}

//export usmb_go_queue_of
func usmb_go_queue_of(filter *C.char, n C.uint64_t, out *unsafe.Pointer, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	rt, err := openRuntime(false)
	if err != nil {
		return report(e, err)
	}
	dev, err := rt.Device(text(filter, n))
	if err != nil {
		return report(e, err)
	}
	q, err := dev.DefaultQueue()
	if err != nil {
		return report(e, err)
	}
	*out = nil
	if !q.IsHost() {
		*out = q.Ref()
	}
	return 0
}

// ints returns a C array as a slice, without a copy. It returns nil for NULL.
func ints(p *C.int64_t, n C.int32_t) []int {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*int)(unsafe.Pointer(p)), n)
}

// fields returns the properties of typedescr that USMInterface.Check reads.
func fields(in *C.usmb_suai_in) []usmarray.TypeField {
	list := make([]usmarray.TypeField, min(int(in.nfields), 2))
	list[0].Type = text(in.fieldtype, in.nfieldtype)
	if in.named != 0 {
		list[0].Name = "a named field"
	}
	if in.shaped != 0 {
		list[0].Shape = []int{1}
	}
	return list
}

//export usmb_go_text
func usmb_go_text(src *C.usmb_array, out **C.char, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	a, err := borrowed(src)
	if err != nil {
		return report(e, err)
	}
	s, err := a.Format(usmarray.PrintOptions{Separator: ", ", Prefix: "Array("})
	if err != nil {
		return report(e, err)
	}
	*out = C.CString(s)
	return 0
}

func int64s(p *C.int64_t, n C.int32_t) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(p)), n)
}

//export usmb_go_trim
func usmb_go_trim(bytes *C.uint64_t) {
	r := C.int(running)
	defer guard(&C.usmb_goerr{}, &r) // After a panic, the bytes trimmed so far are returned.
	*bytes += C.uint64_t(memmgr.TrimAll())
	*bytes += C.uint64_t(trimShared())
	r = 0
}

//export usmb_go_set_limit
func usmb_go_set_limit(bytes C.uint64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	return report(e, setLimit(uint64(bytes)))
}

//export usmb_go_stats
func usmb_go_stats(out **C.usmb_stat, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	return putCounters(counters(), out, n, e)
}

// putCounters stores a C array of counters in *out and its length in *n. list is not empty.
func putCounters(list []counter, out **C.usmb_stat, n *C.int64_t, e *C.usmb_goerr) C.int {
	p := (*C.usmb_stat)(C.calloc(C.size_t(len(list)), C.sizeof_usmb_stat))
	if p == nil {
		return reportKind(e, kindMemory, "no memory for the counters")
	}
	entries := unsafe.Slice(p, len(list))
	for i := range list {
		dst := &entries[i]
		fill(dst.name[:], list[i].name)
		dst.value = C.int64_t(list[i].value)
	}
	*out, *n = p, C.int64_t(len(list))
	return 0
}

//export usmb_go_info
func usmb_go_info(asJSON C.int32_t, version, executable, prefix *C.char, out **C.char, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	var text strings.Builder
	interpreter := usminfo.Interpreter{Version: C.GoString(version), Executable: C.GoString(executable), Prefix: C.GoString(prefix)}
	open := func() (*syclobj.Runtime, error) { return openRuntime(true) }
	if err := usminfo.Write(&text, asJSON != 0, open, &interpreter); err != nil {
		return report(e, err)
	}
	*out = C.CString(text.String())
	return 0
}

// fill writes a terminated string into a zeroed field and truncates it if necessary.
func fill(dst []C.char, s string) {
	for i := 0; i < len(s) && i < len(dst)-1; i++ {
		dst[i] = C.char(s[i])
	}
}

//export usmb_go_devices
func usmb_go_devices(out **C.usmb_device_info, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	rt, err := openRuntime(false)
	if err != nil {
		return report(e, err)
	}
	list := rt.Devices()
	p := (*C.usmb_device_info)(C.calloc(C.size_t(len(list)), C.sizeof_usmb_device_info))
	if p == nil {
		return reportKind(e, kindMemory, "no memory for the list of devices")
	}
	infos := unsafe.Slice(p, len(list))
	for i, d := range list {
		info, device := &infos[i], d.Info()
		fill(info.filter[:], d.FilterString())
		fill(info.name[:], device.Name)
		fill(info.backend[:], device.Backend.String())
		fill(info._type[:], device.Type.String())
		info.memory = C.uint64_t(device.GlobalMemSize)
		id, err := d.DLPackID()
		if err == nil {
			info.has_dl, info.dl_id, info.dl_type = 1, C.int32_t(id), C.USMB_DL_ONEAPI
		}
		if d.IsHost() {
			info.has_dl, info.dl_id, info.dl_type = 1, 0, C.USMB_DL_CPU
		}
	}
	*out, *n = p, C.int64_t(len(list))
	return 0
}

//export usmb_go_shared_on
func usmb_go_shared_on(cell *C.usmb_cell, queue unsafe.Pointer) (r C.int) {
	r = -1
	defer func() { _ = recover() }()
	rt, err := openRuntime(false)
	if err != nil {
		return r
	}
	q, err := rt.QueueFromRef(queue)
	if err != nil {
		return r
	}
	defer q.Close()
	cells.Buffer(owner.CellOf(unsafe.Pointer(cell))).SharedOn(q)
	return 0
}

//export usmb_go_shared_queues
func usmb_go_shared_queues(cell *C.usmb_cell, queues *C.usmb_recorded_queues, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	all, err := cells.Buffer(owner.CellOf(unsafe.Pointer(cell))).SharedQueues()
	if err != nil || len(all) == 0 {
		return report(e, err)
	}
	p := (*unsafe.Pointer)(C.calloc(C.size_t(len(all)), C.size_t(unsafe.Sizeof(uintptr(0)))))
	if p == nil {
		for _, q := range all {
			C.usmb_sycl_queue_delete(q)
		}
		return reportKind(e, kindMemory, "no memory for the list of queues with work on the array")
	}
	copy(unsafe.Slice(p, len(all)), all)
	queues.refs, queues.n = p, C.size_t(len(all))
	return 0
}

//export usmb_go_forget_queues
func usmb_go_forget_queues(cell *C.usmb_cell) {
	defer func() { _ = recover() }()
	owner.DropQueues(owner.CellOf(unsafe.Pointer(cell)))
}

//export usmb_go_settle
func usmb_go_settle(wait C.int) (settled C.int) {
	defer func() { _ = recover() }()
	if wait == 0 {
		owner.SettleEnded()
	} else if !owner.Settle() {
		return 0
	}
	return 1
}

//export usmb_go_stop
func usmb_go_stop() {
	stopSharing()
	pythonList.Close()
	pythonList.Sync()
	// If Python ends the process, exit runs the destructors of SYCL, and Go must not call SYCL any
	// more. A Go program that closes its interpreter continues.
	if py := python.Current(); py == nil || py.Adopted() {
		diag.StopBackground()
	}
}

// usmb_go_assign writes the elements of src, broadcast and converted, to a part of dst. The
// write is complete on return, because src may be memory that its owner frees then.
//
//export usmb_go_assign
func usmb_go_assign(dst *C.usmb_array, part *C.usmb_region, src *C.usmb_array, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	from, err := borrowed(src)
	if err != nil {
		return report(e, err)
	}
	to, err := borrowedPart(dst, part)
	if err != nil {
		return report(e, err)
	}
	if err = to.ConvertFrom(from); err == nil {
		err = multierr.Append(to.Wait(), from.Wait())
	}
	return report(e, err)
}

// borrowedPart returns a Go array for a part of a Python Array. It is valid for the duration
// of a call. Unlike a view in Python, it may begin inside a byte.
func borrowedPart(a *C.usmb_array, part *C.usmb_region) (*usmarray.Array, error) {
	whole, err := borrowed(a)
	if err != nil {
		return nil, err
	}
	layout, err := usmarray.NewLayout(ints(&part.shape[0], part.ndim), ints(&part.strides[0], part.ndim), whole.Layout().Offset()+int(part.offset))
	if err != nil {
		return nil, err
	}
	return usmarray.WrapBuffer(cells.Buffer(owner.CellOf(unsafe.Pointer(a.cell))), whole.DataType(), layout, optionsOf(a.flags)...)
}
