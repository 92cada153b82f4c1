package usmarray

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray/internal/cuda"
)

// FromDLPack returns an array of a tensor's memory, without a copy. On success the array owns the tensor
// and every handle of it is stale; the deleter runs once the last reference is dropped and pending work is
// complete. On error the tensor is unchanged and still the caller's. If several goroutines try to take
// over one tensor, one succeeds.
//
// kDLCPU becomes an array of the host backend. kDLOneAPI follows dpctl's rules: the device id is the index
// of a root device, the first and the last byte are USM of one kind in the default context of its
// platform, and the array is on the device that the runtime returns for the pointer. READ_ONLY is kept.
// kDLCUDA, kDLCUDAHost and kDLCUDAManaged need a device of SYCL's CUDA backend, which knows memory of other libraries:
// FromDLPack waits for all work of CUDA on the device, because a tensor does not name its stream.
//
// Errors: ErrExchange, for other device types, a device index out of range, pointers that are not such
// memory, and spans that leave their allocation.
func FromDLPack(rt *syclobj.Runtime, t dlpack.Tensor) (*Array, error) {
	return fromDLPack("FromDLPack", rt, t, false)
}

// FromXPU is FromDLPack for a tensor of Intel Extension for PyTorch: USM device memory in the default
// context of its platform; other memory is refused. That protocol defines no order of work: the producer
// must finish (torch.xpu.synchronize), and the caller must call Synchronize, before the elements are used.
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
		mine.Take() // gives it back to the caller
		return nil, err
	}
	return a, nil
}

// fromTaken is FromDLPack for a tensor that no other goroutine can use.
func fromTaken(op string, rt *syclobj.Runtime, t dlpack.Tensor, xpu bool) (*Array, error) {
	span := t.Span()
	place, err := importPlace(op, rt, t, &span)
	if err != nil {
		return nil, err
	}
	defer place.Release()
	if xpu {
		if err := checkXPU(op, place); err != nil {
			return nil, err
		}
	}
	return fromTensor(op, t, place, &span)
}

// importPlace returns the place of a tensor's memory, retained.
func importPlace(op string, rt *syclobj.Runtime, t dlpack.Tensor, span *dlpack.Span) (*syclobj.Place, error) {
	d := t.Device()
	switch d.Type {
	case dlpack.DeviceCPU:
		return syclobj.HostPlace(), nil
	case dlpack.DeviceOneAPI, dlpack.DeviceCUDA, dlpack.DeviceCUDAHost, dlpack.DeviceCUDAManaged:
	default:
		return nil, opErr(op, ErrExchange, "the tensor is on %v; this library imports kDLCPU, kDLOneAPI and the three kinds of CUDA, so copy it there first", d)
	}
	if rt == nil {
		return nil, opErr(op, ErrExchange, "the Runtime is nil; %v memory needs one from syclobj.Open", d.Type)
	}
	if span.First == nil {
		return nil, opErr(op, ErrExchange, "a %v tensor with a null pointer; even one without elements needs USM memory", d.Type)
	}
	first := uintptr(span.First)
	find, id := rt.DLPackPlace, d.ID
	if isCUDA(d) {
		find = cuda.Place
	}
	if d.Type == dlpack.DeviceCUDAHost { // its number is always 0
		id = cuda.AnyDevice
	}
	place, err := find(id, first+uintptr(span.Lo), first+uintptr(span.Hi))
	if err != nil {
		return nil, opErr(op, ErrExchange, "the tensor is on %v: %w", d, err)
	}
	// CUDA does not tell for which device pinned memory was allocated.
	if own := ownBuffer(t); id == cuda.AnyDevice && own.Valid() && own.Place().Kind() == syclobj.USMHost && place.Kind() == syclobj.USMHost {
		place.Release()
		place = own.Place().Retain()
	}
	return place, nil
}

// wholeElements rounds a negative byte offset from an element down to the begin of an element. Packed
// elements begin at whole bytes only every few elements (6-bit ones every three bytes). The bytes below
// the lowest element are not accessed.
func wholeElements(lo, bits int) int {
	for lo*8%bits != 0 {
		lo--
	}
	return lo
}

// fromTensor returns the array of a tensor, and takes over the tensor on success. The buffer is the span of the
// elements, starting at a whole element.
func fromTensor(op string, t dlpack.Tensor, place *syclobj.Place, span *dlpack.Span) (*Array, error) {
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
	buf, err := memmgr.FromForeign(base, uint64(int(span.Hi)-lo), memmgr.ForeignOptions{
		Place: place, Of: ownTensor(t, place), Release: func() { dlpack.Delete(managed, versioned) },
	})
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
	t.Detach() // the buffer deletes the managed struct
	a.watch()
	return a, nil
}

// ownBuffer returns the memory of a tensor that this library exported, or the zero Buffer. The tensor holds a
// reference of it.
func ownBuffer(t dlpack.Tensor) memmgr.Buffer {
	cell := t.OwnerContext(owner.DropFunc())
	if cell == nil {
		cell = t.OwnerContext(owner.DropObservedFunc())
	}
	if cell == nil {
		return memmgr.Buffer{}
	}
	return cells.Buffer(owner.CellOf(cell))
}

// ownTensor returns the memory of a tensor that this library exported, if it is at the place or the tensor shows it
// as memory of the host; else the zero Buffer. The tensor holds a reference of it.
func ownTensor(t dlpack.Tensor, place *syclobj.Place) memmgr.Buffer {
	buf := ownBuffer(t)
	if !buf.Valid() {
		return buf
	}
	if at := buf.Place(); at.IsHost() || at != place && !place.IsHost() {
		return memmgr.Buffer{}
	}
	return buf
}

// checkXPU checks the rules of the xpu protocol.
func checkXPU(op string, place *syclobj.Place) error {
	if place.IsHost() {
		return opErr(op, ErrExchange, "plain host memory does not belong to SYCL; xpu tensors are USM device memory")
	}
	if place.Kind() != syclobj.USMDevice {
		return opErr(op, ErrExchange, "%v; xpu tensors are USM device memory, so copy it there (ToDevice)", place)
	}
	if !place.IsDefaultContext() {
		return opErr(op, ErrExchange, "%v is not in the default context of its platform, which xpu tensors require; copy it there (ToDevice)", place)
	}
	if _, _, err := place.DLPackDevice(); err != nil {
		return wrapErr(op, ErrExchange, err)
	}
	return nil
}

// XPUDevices lists the devices that PyTorch numbers as xpu:0, xpu:1, …: the GPUs among the root devices of
// one platform, in the runtime's order. The platform is the first Level Zero platform with a GPU, else the
// first of any backend with one. A machine without a GPU has no xpu devices. The device_id of their
// tensors is their DLPackID, which can differ from the number. The Runtime owns the devices.
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
