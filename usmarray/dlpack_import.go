package usmarray

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// FromDLPack makes an array of a tensor's memory, without a copy. On success
// the array owns the tensor, whose deleter runs once the last reference is gone
// and pending work is done, and every handle of it is stale; on error the tensor
// is untouched and still the caller's. Of several goroutines that try to take
// over one tensor, one succeeds.
//
// kDLCPU becomes an array of the host backend. kDLOneAPI follows dpctl's rules:
// the device id is the index of a root device, the first and the last byte are
// USM of one kind of the default context of its platform, and the array lies on
// the device that the runtime names for the pointer. READ_ONLY is kept.
//
// Errors: ErrExchange.
func FromDLPack(rt *syclobj.Runtime, t dlpack.Tensor) (*Array, error) {
	return fromDLPack("FromDLPack", rt, t, false)
}

// FromXPU is FromDLPack of a tensor that keeps the rules of Intel Extension for
// PyTorch: USM device memory in the default context of its platform; others are
// refused. That protocol defines no order of work: call Synchronize, and have the
// producer finish (torch.xpu.synchronize), before the elements are used.
func FromXPU(rt *syclobj.Runtime, t dlpack.Tensor) (*Array, error) {
	return fromDLPack("FromXPU", rt, t, true)
}

func fromDLPack(op string, rt *syclobj.Runtime, t dlpack.Tensor, xpu bool) (*Array, error) {
	mine, ok := t.Take()
	if !ok {
		return nil, opErr(op, ErrExchange, "the tensor was released, detached or taken over before")
	}
	a, err := fromTaken(op, rt, mine, xpu)
	if err != nil {
		mine.Take() // it is the caller's again
		return nil, err
	}
	return a, nil
}

// fromTaken is FromDLPack of a tensor that nobody else can use meanwhile.
func fromTaken(op string, rt *syclobj.Runtime, t dlpack.Tensor, xpu bool) (*Array, error) {
	span := t.Span()
	place, err := importPlace(op, rt, t.Device(), &span)
	if err != nil {
		return nil, err
	}
	if xpu {
		err = checkXPU(op, place)
	}
	var a *Array
	if err == nil {
		a, err = wrapTensor(op, t, place, &span)
	}
	if err != nil {
		place.Release()
	}
	return a, err
}

// importPlace finds the place of a tensor's memory; it is retained.
func importPlace(op string, rt *syclobj.Runtime, d dlpack.Device, span *dlpack.Span) (*syclobj.Place, error) {
	switch d.Type {
	case dlpack.DeviceCPU:
		return syclobj.HostPlace(), nil
	case dlpack.DeviceOneAPI:
	default:
		return nil, opErr(op, ErrExchange, "the tensor lies on %v; this library takes kDLCPU and kDLOneAPI, so copy it there first", d)
	}
	if rt == nil {
		return nil, opErr(op, ErrExchange, "the Runtime is nil; memory of kDLOneAPI is looked up in one from syclobj.Open")
	}
	if span.First == nil {
		return nil, opErr(op, ErrExchange, "a kDLOneAPI tensor with a null pointer; even one without elements needs USM memory")
	}
	first := uintptr(span.First)
	place, err := rt.DLPackPlace(d.ID, first+uintptr(span.Lo), first+uintptr(span.Hi))
	if err != nil {
		return nil, wrapErr(op, ErrExchange, err)
	}
	return place, nil
}

// wholeElements rounds a negative byte offset from an element down to where an element
// begins. Packed elements begin at whole bytes every few of them only (6-bit ones every
// three bytes); what lies below the lowest element is counted from and never touched.
func wholeElements(lo, bits int) int {
	for lo*8%bits != 0 {
		lo--
	}
	return lo
}

// wrapTensor makes the array and takes over tensor and place on success; the
// buffer is the span of the elements, from a whole element on.
func wrapTensor(op string, t dlpack.Tensor, place *syclobj.Place, span *dlpack.Span) (*Array, error) {
	dt := t.DataType()
	bits := int(span.ItemBits)
	if classOf(dt) == classOther {
		return nil, opErr(op, ErrExchange, "an array cannot hold %s", dt)
	}
	lo := wholeElements(int(span.Lo), bits)
	shape := t.Shape()
	flags := flagOwner
	if t.Flags()&dlpack.ReadOnly != 0 {
		flags |= flagReadOnly
	}
	if t.Flags()&dlpack.SubBytePadded != 0 && dt.IsSubByte() {
		flags |= flagPadded
	}
	var base unsafe.Pointer
	if span.First != nil {
		base = pointerAt(uintptr(span.First) + uintptr(lo))
	}
	managed, versioned := t.Managed()
	closing := memmgr.WrapOptions{Place: place, GivePlace: true, Closer: deleteTensor, P: managed}
	if versioned {
		closing.N = 1
	}
	buf, err := memmgr.Wrap(base, uint64(int(span.Hi)-lo), closing)
	if err != nil {
		return nil, wrapErr(op, nil, err)
	}
	a := newArray(buf, place, dt, len(shape), flags)
	for i, s := range t.Strides() {
		a.layout.shape[i], a.layout.strides[i] = int(shape[i]), int(s)
	}
	if lo != 0 {
		a.layout.offset = -lo * 8 / bits
	}
	t.Detach() // the buffer ends the managed struct now
	a.watch()
	return a, nil
}

// deleteTensor ends a tensor's managed struct by its deleter.
func deleteTensor(managed unsafe.Pointer, versioned uintptr) { dlpack.Delete(managed, versioned != 0) }

// checkXPU verifies the rules of the xpu consumer profile.
func checkXPU(op string, place *syclobj.Place) error {
	if place.IsHost() {
		return opErr(op, ErrExchange, "plain host memory is none of SYCL's; xpu tensors are USM device memory")
	}
	if place.Kind() != syclobj.USMDevice {
		return opErr(op, ErrExchange, "%v; xpu tensors are USM device memory, so copy it there (ToDevice)", place)
	}
	if !place.IsDefaultContext() {
		return opErr(op, ErrExchange, "%v is not in the default context of its platform, which xpu tensors need; copy it there (ToDevice)", place)
	}
	if _, _, err := place.DLPackDevice(); err != nil {
		return wrapErr(op, ErrExchange, err)
	}
	return nil
}

// XPUDevices lists the devices that PyTorch numbers as xpu:0, xpu:1, …: the GPUs
// among the root devices of one platform, in the runtime's order. The platform
// is the first Level Zero one with a GPU, else the first of any backend with
// one; a machine without a GPU has no xpu devices. The device_id of their tensors,
// which can differ from the number, is their DLPackID. The devices belong to the
// Runtime.
func XPUDevices(rt *syclobj.Runtime) []*syclobj.Device {
	if rt == nil {
		return nil
	}
	var found []*syclobj.Device
	for _, p := range rt.Platforms() {
		gpus := platformGPUs(rt, p)
		if len(gpus) == 0 {
			continue
		}
		if p.Info().Backend == syclobj.BackendLevelZero {
			return gpus
		}
		if found == nil {
			found = gpus
		}
	}
	return found
}

func platformGPUs(rt *syclobj.Runtime, p *syclobj.Platform) []*syclobj.Device {
	var gpus []*syclobj.Device
	for _, d := range rt.RootDevices() {
		if d.Info().Type == syclobj.TypeGPU && d.Platform() == p {
			gpus = append(gpus, d)
		}
	}
	return gpus
}
