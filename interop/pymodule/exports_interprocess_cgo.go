//go:build cgo && linux

package pymodule

/*
#include <stdlib.h>
#include "create.h"
#include "module.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/interop/internal/poll"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/usmarray"
)

// await calls f with a context that ends after the timeout, or when a signal handler of Python raises an
// exception. Then await returns errInterrupted, even if f succeeded meanwhile; the caller undoes what f did.
// saved is the thread state of the thread that Python has called, on which await and f run.
func await(timeout C.int64_t, saved *C.PyThreadState, f func(context.Context) error) error {
	ctx, cancel := withTimeout(int64(timeout))
	defer cancel()
	raised := false
	err := f(poll.With(ctx, func() {
		if !raised && C.usmb_py_signals(saved) < 0 {
			raised = true
			cancel()
		}
	}))
	if raised {
		return errInterrupted
	}
	return err
}

//export usmb_go_audience
func usmb_go_audience(cell *C.usmb_cell) (r C.int) {
	defer func() { _ = recover() }() // Freed memory has no audience.
	audience, _ := share.AudienceOf(cells.Buffer(owner.CellOf(unsafe.Pointer(cell))))
	return C.int(audience)
}

//export usmb_go_share_export
func usmb_go_share_export(a *C.usmb_array, timeout C.int64_t, saved *C.PyThreadState, out **C.char, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	from, err := borrowed(a)
	if err != nil {
		return report(e, err)
	}
	var handle []byte
	err = await(timeout, saved, func(ctx context.Context) (err error) {
		handle, err = exportHandle(ctx, from)
		return err
	})
	if handle != nil { // also if the call was interrupted: C revokes it then
		*out, *n = (*C.char)(C.CBytes(handle)), C.int64_t(len(handle))
	}
	return report(e, err)
}

//export usmb_go_share_revoke
func usmb_go_share_revoke(handle *C.char, n C.int64_t) {
	defer func() { _ = recover() }() // The handle expires anyway.
	if h, err := share.ParseHandle(C.GoBytes(unsafe.Pointer(handle), C.int(n))); err == nil {
		revoke([]share.Handle{h})
	}
}

//export usmb_go_share_open
func usmb_go_share_open(handle *C.char, n C.int64_t, usm C.int32_t, timeout C.int64_t, saved *C.PyThreadState, out *C.usmb_handover, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	encoded := C.GoBytes(unsafe.Pointer(handle), C.int(n))
	var a *usmarray.Array
	owner.Settle() // leases of memory that Python has dropped end before the next one begins
	err := await(timeout, saved, func(ctx context.Context) (err error) {
		a, err = openHandle(ctx, encoded, usm != 0)
		return err
	})
	return handOver(a, err, out, e)
}

//export usmb_go_share_attach
func usmb_go_share_attach(address *C.char, naddress C.int64_t, name *C.char, nname, timeout C.int64_t, saved *C.PyThreadState, sequence *C.uint64_t, out *C.usmb_handover, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	at, key := text(address, C.uint64_t(naddress)), text(name, C.uint64_t(nname))
	var a *usmarray.Array
	owner.Settle() // leases of memory that Python has dropped end before the next one begins
	err := await(timeout, saved, func(ctx context.Context) (err error) {
		if sequence == nil {
			a, err = attach(ctx, at, key)
			return err
		}
		var number uint64
		a, number, err = waitNewer(ctx, at, key, uint64(*sequence))
		*sequence = C.uint64_t(number)
		return err
	})
	return handOver(a, err, out, e)
}

// handOver writes the description of an array to out and releases the array, also if there is an error. C
// owns a reference to its memory.
func handOver(a *usmarray.Array, err error, out *C.usmb_handover, e *C.usmb_goerr) C.int {
	defer a.Release()
	if err != nil {
		return report(e, err)
	}
	d, err := describe(a)
	if err != nil {
		return reportKind(e, kindBuffer, err.Error())
	}
	out.cell, out.first = (*C.usmb_cell)(cells.Of(a.Buffer()).Pointer()), C.uintptr_t(d.First)
	out.dtype, out.flags, out.ndim = cType(a.DataType()), C.uint32_t(d.Flags), C.int32_t(len(d.Shape))
	copy(ints(&out.shape[0], out.ndim), d.Shape)
	copy(ints(&out.strides[0], out.ndim), d.Strides)
	return 0
}

//export usmb_go_share_names
func usmb_go_share_names(address *C.char, naddress, timeout C.int64_t, saved *C.PyThreadState, out **C.char, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	at := text(address, C.uint64_t(naddress))
	var names []string
	err := await(timeout, saved, func(ctx context.Context) (err error) {
		names, err = published(ctx, at)
		return err
	})
	if err != nil {
		return report(e, err)
	}
	var b []byte // each name after its length, because a name may contain any byte
	for _, name := range names {
		b = binary.NativeEndian.AppendUint64(b, uint64(len(name)))
		b = append(b, name...)
	}
	*out, *n = (*C.char)(C.CBytes(b)), C.int64_t(len(names))
	return 0
}

//export usmb_go_share_listen
func usmb_go_share_listen(address *C.char, naddress, timeout C.int64_t, saved *C.PyThreadState, limits *C.int64_t, number *C.uint64_t, out **C.char, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	bounds := [C.USMB_SHARE_LIMITS]int64(unsafe.Slice((*int64)(unsafe.Pointer(limits)), C.USMB_SHARE_LIMITS))
	path := text(address, C.uint64_t(naddress))
	var id uint64
	var at string
	err := await(timeout, saved, func(ctx context.Context) (err error) {
		id, at, err = serve(ctx, path, bounds)
		return err
	})
	if err != nil {
		_ = closeServer(id) // if the call was interrupted; 0 is no server
		return report(e, err)
	}
	*number, *out, *n = C.uint64_t(id), C.CString(at), C.int64_t(len(at))
	return 0
}

//export usmb_go_share_publish
func usmb_go_share_publish(number C.uint64_t, name *C.char, nname C.int64_t, a *C.usmb_array, timeout C.int64_t, saved *C.PyThreadState, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	s, err := server(uint64(number))
	if err != nil {
		return report(e, err)
	}
	from, err := borrowed(a)
	if err != nil {
		return report(e, err)
	}
	key := text(name, C.uint64_t(nname))
	return report(e, await(timeout, saved, func(ctx context.Context) error { return s.Replace(ctx, key, from) }))
}

//export usmb_go_share_withdraw
func usmb_go_share_withdraw(number C.uint64_t, name *C.char, nname C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	s, err := server(uint64(number))
	if err == nil {
		err = s.Withdraw(text(name, C.uint64_t(nname)))
	}
	return report(e, err)
}

//export usmb_go_share_close
func usmb_go_share_close(number C.uint64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	return report(e, closeServer(uint64(number)))
}

//export usmb_go_share_end_with
func usmb_go_share_end_with(pid C.int64_t, handles *C.char, n C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	rest := C.GoBytes(unsafe.Pointer(handles), C.int(n))
	var all []share.Handle
	for len(rest) >= 4 {
		size := int(binary.NativeEndian.Uint32(rest))
		if rest = rest[4:]; size > len(rest) {
			break
		}
		h, err := share.ParseHandle(rest[:size])
		if err != nil {
			return report(e, err)
		}
		all, rest = append(all, h), rest[size:]
	}
	if len(rest) > 0 {
		return reportKind(e, kindValue, "truncated handles")
	}
	revokeAfter(int(pid), all)
	return 0
}

//export usmb_go_share_stats
func usmb_go_share_stats(out **C.usmb_stat, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, begun(&r))
	s := sharingStats()
	return putCounters([]counter{
		{"peers", int64(s.Peers)}, {"unopened", int64(s.Unopened)}, {"leases", int64(s.Leases)},
		{"opened", int64(s.Opened)}, {"mapped", int64(s.Mapped)}, {"mapped_bytes", int64(s.MappedBytes)},
	}, out, n, e)
}
