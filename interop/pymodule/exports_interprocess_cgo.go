//go:build cgo && linux

package pymodule

/*
#include <stdlib.h>
#include "create.h"
#include "module.h"
*/
import "C"

import (
	"encoding/binary"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

//export usmb_go_audience
func usmb_go_audience(cell *C.usmb_cell) (r C.int) {
	defer func() { _ = recover() }() // memory that is gone has no audience
	audience, _ := share.AudienceOf(memmgr.FromCell(owner.CellOf(unsafe.Pointer(cell))))
	return C.int(audience)
}

//export usmb_go_share_export
func usmb_go_share_export(a *C.usmb_array, time C.int64_t, out **C.char, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	from, err := borrowed(a)
	if err != nil {
		return report(e, err)
	}
	ctx, cancel := within(int64(time))
	defer cancel()
	handle, err := exportHandle(ctx, from)
	if err == nil && handle != nil {
		*out, *n = (*C.char)(C.CBytes(handle)), C.int64_t(len(handle))
	}
	return report(e, err)
}

//export usmb_go_share_revoke
func usmb_go_share_revoke(handle *C.char, n C.int64_t) {
	defer func() { _ = recover() }() // it ends by itself
	if h, err := share.ParseHandle(C.GoBytes(unsafe.Pointer(handle), C.int(n))); err == nil {
		endHandles([]share.Handle{h})
	}
}

//export usmb_go_share_open
func usmb_go_share_open(handle *C.char, n C.int64_t, usm C.int32_t, time C.int64_t, out *C.usmb_handover, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	ctx, cancel := within(int64(time))
	defer cancel()
	a, err := openHandle(ctx, C.GoBytes(unsafe.Pointer(handle), C.int(n)), usm != 0)
	if err != nil {
		return report(e, err)
	}
	return handOver(a, out, e)
}

//export usmb_go_share_attach
func usmb_go_share_attach(address *C.char, naddress C.int64_t, name *C.char, nname, time C.int64_t, out *C.usmb_handover, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	ctx, cancel := within(int64(time))
	defer cancel()
	a, err := attach(ctx, text(address, C.uint64_t(naddress)), text(name, C.uint64_t(nname)))
	if err != nil {
		return report(e, err)
	}
	return handOver(a, out, e)
}

// handOver gives an array to Python, with the reference that it owns.
func handOver(a *usmarray.Array, out *C.usmb_handover, e *C.usmb_goerr) C.int {
	shape, strides, buffer := a.Shape(), a.Strides(), a.Buffer()
	var flags C.uint32_t
	if a.ReadOnly() {
		flags |= C.USMB_ARR_READONLY
	}
	if a.Padded() {
		flags |= C.USMB_ARR_PADDED
	}
	flags |= sharedFlags(buffer)
	dt := a.DataType()
	out.dtype = C.usmb_dl_dtype{code: C.uint8_t(dt.Code), bits: C.uint8_t(dt.Bits), lanes: C.uint16_t(dt.Lanes)}
	if bits := dt.StorageBits(a.Padded()); len(shape) > C.USMB_DL_MAX_NDIM || bits < 8 && a.Layout().Offset()*bits%8 != 0 {
		a.Release()
		return reportKind(e, kindBuffer, "the array has more dimensions than Python can have, or packed elements that begin inside a byte")
	}
	out.cell, out.first, out.flags, out.ndim = (*C.usmb_cell)(buffer.Cell().Pointer()), C.uintptr_t(uintptr(a.Pointer())), flags, C.int32_t(len(shape))
	for i := range shape {
		out.shape[i], out.strides[i] = C.int64_t(shape[i]), C.int64_t(strides[i])
	}
	return 0
}

//export usmb_go_share_names
func usmb_go_share_names(address *C.char, naddress, time C.int64_t, out **C.char, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	ctx, cancel := within(int64(time))
	defer cancel()
	names, err := published(ctx, text(address, C.uint64_t(naddress)))
	if err != nil {
		return report(e, err)
	}
	var b []byte // with lengths, because a name may hold any byte
	for _, name := range names {
		b = binary.NativeEndian.AppendUint64(b, uint64(len(name)))
		b = append(b, name...)
	}
	*out, *n = (*C.char)(C.CBytes(b)), C.int64_t(len(names))
	return 0
}

//export usmb_go_share_listen
func usmb_go_share_listen(address *C.char, naddress, time C.int64_t, number *C.uint64_t, out **C.char, n *C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	ctx, cancel := within(int64(time))
	defer cancel()
	id, at, err := serve(ctx, text(address, C.uint64_t(naddress)))
	if err != nil {
		return report(e, err)
	}
	*number, *out, *n = C.uint64_t(id), C.CString(at), C.int64_t(len(at))
	return 0
}

//export usmb_go_share_publish
func usmb_go_share_publish(number C.uint64_t, name *C.char, nname C.int64_t, a *C.usmb_array, time C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	s, err := served(uint64(number))
	if err != nil {
		return report(e, err)
	}
	from, err := borrowed(a)
	if err != nil {
		return report(e, err)
	}
	ctx, cancel := within(int64(time))
	defer cancel()
	return report(e, s.Replace(ctx, text(name, C.uint64_t(nname)), from))
}

//export usmb_go_share_withdraw
func usmb_go_share_withdraw(number C.uint64_t, name *C.char, nname C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	s, err := served(uint64(number))
	if err == nil {
		err = s.Withdraw(text(name, C.uint64_t(nname)))
	}
	return report(e, err)
}

//export usmb_go_share_close
func usmb_go_share_close(number C.uint64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	return report(e, endServer(uint64(number)))
}

//export usmb_go_share_end_with
func usmb_go_share_end_with(pid C.int64_t, handles *C.char, n C.int64_t, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
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
		return reportKind(e, kindValue, "handles that are cut off")
	}
	endWith(int(pid), all)
	return 0
}

//export usmb_go_share_stats
func usmb_go_share_stats(out *C.int64_t) {
	defer func() { _ = recover() }() // counters only
	s := sharingStats()
	v := unsafe.Slice((*int64)(unsafe.Pointer(out)), int(C.USMB_SHARE_STATS))
	copy(v, []int64{int64(s.Peers), int64(s.Unopened), int64(s.Leases), int64(s.Opened), int64(s.Mapped), int64(s.MappedBytes)})
}
