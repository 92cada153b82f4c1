//go:build linux && cgo

// Package cpeer is the peer of DLPack exchanges in the tests and benchmarks of package dlpack: a producer and
// a consumer in plain C, which share no declaration with package dlpack, and an owner that counts its drops.
// It also gives tests access to dlpack's C functions, because test files cannot use cgo.
package cpeer

/*
#cgo CFLAGS: -I${SRCDIR}/../..
#include <stdlib.h>
#include "peer.h"
#include "usmb_dlpack.h"

static void *usmb_peer_drop_address(void) { return (void *)usmb_peer_drop; }
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
)

// Fields are the values that the producer writes, including zero values.
type Fields struct {
	Legacy     bool
	Version    dlpack.Version
	Flags      dlpack.Flags
	Data       unsafe.Pointer
	Device     dlpack.Device
	NDim       int32
	DataType   dlpack.DataType
	Shape      []int64 // nil: NULL
	Strides    []int64 // nil: NULL
	ByteOffset uint64
	NoDeleter  bool // the deleter is NULL; FreeUndeleted frees the struct
	Keep       bool // the deleter only counts; FreeUndeleted frees the struct
}

func ints(s []int64) *C.int64_t { return (*C.int64_t)(unsafe.SliceData(s)) }

// Produce returns a managed tensor with exactly these fields.
func Produce(f Fields) unsafe.Pointer {
	t := C.usmb_peer_tensor{
		data: f.Data, device_type: C.int32_t(f.Device.Type), device_id: C.int32_t(f.Device.ID),
		ndim: C.int32_t(f.NDim), code: C.uint8_t(f.DataType.Code), bits: C.uint8_t(f.DataType.Bits),
		lanes: C.uint16_t(f.DataType.Lanes), byte_offset: C.uint64_t(f.ByteOffset),
	}
	if f.Legacy {
		m := C.usmb_peer_produce_legacy(t, ints(f.Shape), ints(f.Strides))
		if f.NoDeleter {
			m.deleter = nil
		}
		if f.Keep {
			C.usmb_peer_keep(unsafe.Pointer(m), 0)
		}
		return unsafe.Pointer(m)
	}
	m := C.usmb_peer_produce(C.uint32_t(f.Version.Major), C.uint32_t(f.Version.Minor), C.uint64_t(f.Flags), t,
		ints(f.Shape), ints(f.Strides))
	if f.NoDeleter {
		m.deleter = nil
	}
	if f.Keep {
		C.usmb_peer_keep(unsafe.Pointer(m), 1)
	}
	return unsafe.Pointer(m)
}

// FreeUndeleted frees a struct of Produce whose deleter was NULL or only counted.
func FreeUndeleted(managed unsafe.Pointer, versioned bool) {
	t := tensorOf(managed, versioned)
	C.free(unsafe.Pointer(t.shape))
	C.free(unsafe.Pointer(t.strides))
	C.free(managed)
}

// Deleted returns the number of calls of the producer's deleters.
func Deleted() int64 { return int64(C.usmb_peer_deleted()) }

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Sum adds up a float tensor in C and deletes it. It returns NaN for other tensors.
func Sum(managed unsafe.Pointer, versioned bool) float64 {
	return float64(C.usmb_peer_sum(managed, cBool(versioned)))
}

// DeleteOnThread runs the deleter on a new thread.
func DeleteOnThread(managed unsafe.Pointer, versioned bool) bool {
	return C.usmb_peer_delete_on_thread(managed, cBool(versioned)) == 0
}

// DeleteInChild runs the deleter in a forked child and returns the exit status of the child, 0 if the owner
// was dropped once there. The tensor of this process is unchanged.
func DeleteInChild(managed unsafe.Pointer, versioned bool, owner Owner) int {
	return int(C.usmb_peer_delete_in_child(managed, cBool(versioned), unsafe.Pointer(owner.c)))
}

func tensorOf(managed unsafe.Pointer, versioned bool) *C.usmb_peer_tensor {
	return C.usmb_peer_tensor_of(managed, cBool(versioned))
}

// Read returns the tensor as a consumer reads it, with copies of shape and strides; nil is NULL.
func Read(managed unsafe.Pointer, versioned bool) Fields {
	t := tensorOf(managed, versioned)
	f := Fields{
		Legacy: !versioned, Data: t.data, NDim: int32(t.ndim), ByteOffset: uint64(t.byte_offset),
		Device:   dlpack.Device{Type: dlpack.DeviceType(t.device_type), ID: int32(t.device_id)},
		DataType: dlpack.DataType{Code: dlpack.Code(t.code), Bits: uint8(t.bits), Lanes: uint16(t.lanes)},
		Shape:    copyInts(t.shape, t.ndim), Strides: copyInts(t.strides, t.ndim),
	}
	if versioned {
		m := (*C.usmb_peer_versioned)(managed)
		f.Version = dlpack.Version{Major: uint32(m.major), Minor: uint32(m.minor)}
		f.Flags = dlpack.Flags(m.flags)
		f.NoDeleter = m.deleter == nil
	} else {
		f.NoDeleter = (*C.usmb_peer_managed)(managed).deleter == nil
	}
	return f
}

func copyInts(p *C.int64_t, n C.int32_t) []int64 {
	if p == nil {
		return nil
	}
	return append([]int64{}, unsafe.Slice((*int64)(p), int(n))...)
}

// WriteOn starts a thread that writes to a tensor of 64 extents until stop is called. stop is nil if no thread
// could be started.
func WriteOn(managed unsafe.Pointer, versioned bool) (stop func()) {
	w := C.usmb_peer_write_start(tensorOf(managed, versioned))
	if w == nil {
		return nil
	}
	return func() { C.usmb_peer_write_stop(w) }
}

// Overwrite replaces the fields of a tensor; its arrays of shape and strides stay at their addresses.
func Overwrite(managed unsafe.Pointer, versioned bool, f Fields) {
	t := tensorOf(managed, versioned)
	t.ndim, t.byte_offset, t.data = C.int32_t(f.NDim), C.uint64_t(f.ByteOffset), f.Data
	t.code, t.bits, t.lanes = C.uint8_t(f.DataType.Code), C.uint8_t(f.DataType.Bits), C.uint16_t(f.DataType.Lanes)
	copy(unsafe.Slice((*int64)(t.shape), len(f.Shape)), f.Shape)
	copy(unsafe.Slice((*int64)(t.strides), len(f.Strides)), f.Strides)
}

// Owner counts its drops.
type Owner struct{ c *C.usmb_peer_owner }

// NewOwner returns an owner; the caller frees it with Free.
func NewOwner() Owner {
	return Owner{(*C.usmb_peer_owner)(C.calloc(1, C.size_t(unsafe.Sizeof(C.usmb_peer_owner{}))))}
}

// DLPack returns the owner for dlpack.Export.
func (o Owner) DLPack() dlpack.Owner {
	return dlpack.Owner{Drop: uintptr(C.usmb_peer_drop_address()), Ctx: unsafe.Pointer(o.c)}
}

// Drops returns the number of dropped references.
func (o Owner) Drops() int64 { return atomic.LoadInt64((*int64)(unsafe.Pointer(&o.c.drops))) }

// Free frees the owner.
func (o Owner) Free() { C.free(unsafe.Pointer(o.c)) }

// Alloc allocates zeroed C memory, aligned to 16 bytes.
func Alloc(size int) unsafe.Pointer { return C.calloc(1, C.size_t(size)) }

// Free frees C memory.
func Free(p unsafe.Pointer) { C.free(p) }
