package usmarray

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// CopyMode says whether an export may or must copy.
type CopyMode uint8

const (
	// CopyMaybe copies when the request cannot be met without (None in Python).
	CopyMaybe CopyMode = iota
	// CopyAlways copies, and marks the tensor IS_COPIED.
	CopyAlways
	// CopyNever fails where a copy would be needed.
	CopyNever
)

// ExportOptions is what a consumer may ask of DLPackWith. The zero value asks for
// nothing.
type ExportOptions struct {
	// OnQueue is the consumer's queue: a barrier orders it after the work that this
	// library submitted on the memory, instead of a wait on the host.
	OnQueue *syclobj.Queue
	// NoSync neither waits nor orders anything (stream -1 in Python): the consumer
	// knows what it does.
	NoSync bool
	// MaxVersion is the newest DLPack that the consumer understands: a lower major
	// version than ours gets the legacy struct. Zero means this library's.
	MaxVersion dlpack.Version
	// Legacy asks for the struct without a version (no max_version in Python).
	// Read-only memory is refused then, because that struct cannot say so.
	Legacy bool
	// Device asks for a device. (kDLCPU, 0), the only CPU there is, of shared and
	// host USM is the same memory without a copy, after waiting for pending work,
	// whatever its context; of device memory it is a copy. Another device is a copy
	// in the memory of the CopyTo resource. Nil is the memory's own.
	Device *dlpack.Device
	// Copy forces or forbids a copy. A copy belongs to the tensor alone, which
	// IS_COPIED says. One of USM lies in the same kind of memory of the default
	// context of its device, from memmgr.Default, unless CopyTo says otherwise.
	Copy CopyMode
	// CopyTo is where a copy is allocated, if there is one.
	CopyTo memmgr.Resource
	// XPU exports by the rules that Intel Extension for PyTorch imports with: USM
	// device memory in the default context of its platform. Anything else is an
	// ErrExchange that says what does not fit.
	XPU bool
}

// DLPack exports the array as an owned DLPack tensor that shares the memory: a
// kDLOneAPI tensor for USM in the default context of its platform, kDLCPU on the
// host backend. The tensor holds a reference of the memory of its own; the
// caller releases it, detaches it, or gives it to a consumer. Pending work is waited
// for.
//
// Nothing is known about the consumer's work on the memory: a consumer on a
// queue of its own finishes before it releases the tensor.
//
// Errors: ErrExchange for what DLPack cannot say.
func (a *Array) DLPack() (dlpack.Tensor, error) {
	a.hold(opDLPack)
	t, err := a.export(&defaultExport)
	if err != nil {
		a.buf.Release()
	}
	return t, err
}

var defaultExport = ExportOptions{MaxVersion: dlpack.CurrentVersion}

// DLPackWith is DLPack for a consumer with wishes of its own. Errors: ErrExchange
// also for what they forbid.
func (a *Array) DLPackWith(o ExportOptions) (dlpack.Tensor, error) {
	if o.MaxVersion == (dlpack.Version{}) {
		o.MaxVersion = dlpack.CurrentVersion
	}
	a.hold("DLPackWith")
	t, err := a.exportWith(&o)
	if err != nil {
		a.buf.Release()
	}
	return t, err
}

const opDLPack = "DLPack"

// exportWith copies first where the options ask for it.
func (a *Array) exportWith(o *ExportOptions) (dlpack.Tensor, error) {
	to, asCPU, err := a.copyTarget(o)
	if err != nil {
		return dlpack.Tensor{}, err
	}
	if to == nil {
		if o.Device != nil && asCPU {
			o.NoSync, o.OnQueue = false, nil // a CPU consumer reads at once
		}
		return a.export(o)
	}
	if o.Copy == CopyNever {
		return dlpack.Tensor{}, opErr(opDLPack, ErrExchange, "%v would have to be copied to become what was asked for, and copying is forbidden; allow it or use ToDevice", a.place)
	}
	b, err := a.copyInto(opDLPack, to, nil)
	if err != nil {
		return dlpack.Tensor{}, err
	}
	b.flags |= flagCopied
	defer b.Release() // the resource may own it as well (an arena): the tensor gets a reference of its own
	b.hold(opDLPack)
	t, err := b.export(o)
	if err != nil {
		b.buf.Release()
		return dlpack.Tensor{}, err
	}
	a.buf.Release()
	return t, nil
}

// copyTarget decides whether the request needs a copy, and where: nil for none.
// asCPU says that the memory is to be shown as kDLCPU.
func (a *Array) copyTarget(o *ExportOptions) (to memmgr.Resource, asCPU bool, err error) {
	place := a.place
	if o.Device == nil {
		if o.Copy != CopyAlways {
			return nil, false, nil
		}
		to, err = a.sameMemory(o)
		return to, false, err
	}
	switch {
	case *o.Device == dlpack.CPU:
		if a.buf.HostReadable() && o.Copy != CopyAlways {
			return nil, true, nil
		}
		if o.CopyTo != nil {
			return o.CopyTo, true, nil
		}
		return memmgr.Host(), true, nil
	case o.Device.Type == dlpack.DeviceOneAPI:
		_, id, derr := place.DLPackDevice()
		if derr == nil && !place.IsHost() && id == o.Device.ID && o.Copy != CopyAlways {
			return nil, false, nil
		}
		if o.CopyTo == nil && (place.IsHost() || derr == nil && id != o.Device.ID) {
			return nil, false, opErr(opDLPack, ErrExchange, "%v is asked for and the memory is %v; say with CopyTo where the copy is to be allocated", *o.Device, place)
		}
		to, err = a.sameMemory(o)
		return to, false, err
	}
	return nil, false, opErr(opDLPack, ErrExchange, "%v is asked for; this library exports (kDLCPU, 0) and kDLOneAPI", *o.Device)
}

// sameMemory is the resource for a copy in memory of the same kind and device,
// in the default context.
func (a *Array) sameMemory(o *ExportOptions) (memmgr.Resource, error) {
	place := a.place
	if o.CopyTo != nil {
		return o.CopyTo, nil
	}
	if place.IsHost() {
		return memmgr.Host(), nil
	}
	d, err := place.Device()
	if err != nil {
		return nil, wrapErr(opDLPack, ErrExchange, err)
	}
	q, err := d.Root().DefaultQueue()
	if err != nil {
		return nil, wrapErr(opDLPack, ErrExchange, err)
	}
	r, err := memmgr.Default(q, place.Kind())
	if err != nil {
		return nil, wrapErr(opDLPack, ErrExchange, err)
	}
	return r, nil
}

// export builds the tensor of this very memory, which is held: the reference
// goes to the tensor on success.
func (a *Array) export(o *ExportOptions) (dlpack.Tensor, error) {
	device, err := a.exportDevice(o)
	if err != nil {
		return dlpack.Tensor{}, err
	}
	cell := a.buf.Cell()
	memory := cell.Flags()
	flags := a.exportFlags(memory)
	versioned := true
	if o != &defaultExport {
		max := &o.MaxVersion
		if o.Legacy {
			max = nil
		}
		if versioned, err = dlpack.Negotiate(max, flags); err != nil {
			return dlpack.Tensor{}, wrapErr(opDLPack, ErrExchange, err)
		}
	}
	if cell.Pending() != 0 || o.OnQueue != nil {
		if err := a.exportSync(o); err != nil {
			return dlpack.Tensor{}, err
		}
	}
	bits := a.elemBits()
	if a.layout.offset*bits%8 != 0 {
		return dlpack.Tensor{}, opErr(opDLPack, ErrExchange, "the first %s element begins within a byte, which DLPack cannot say; Copy first", a.dtype)
	}
	if memory&owner.Exported == 0 { // setting it is the dearer part
		cell.SetFlags(owner.Exported)
	}
	var view dlpack.View // set field by field, which is quicker than a literal
	view.Data = pointerAt(cell.Address + uintptr(a.layout.offset*bits/8))
	view.Device = device
	view.DataType = a.dtype
	view.Shape, view.Strides = int64s(a.layout.shape), int64s(a.layout.strides)
	t, err := dlpack.Export(&view, flags, versioned, dlpack.Owner{Drop: owner.DropFunc(), Ctx: cell.Pointer()})
	if err != nil {
		return dlpack.Tensor{}, wrapErr(opDLPack, ErrExchange, err)
	}
	return t, nil
}

// exportDevice is the DLPack device that the memory is shown as.
func (a *Array) exportDevice(o *ExportOptions) (dlpack.Device, error) {
	place := a.place
	if o.XPU {
		if err := checkXPU(opDLPack, place); err != nil {
			return dlpack.Device{}, err
		}
	}
	if o.Device != nil && o.Device.Type == dlpack.DeviceCPU {
		if !a.buf.HostReadable() { // the copy in CopyTo's memory
			return dlpack.Device{}, notAsked(o.Device, place)
		}
		return dlpack.CPU, nil
	}
	typ, id, err := place.DLPackDevice()
	if err != nil {
		return dlpack.Device{}, opErr(opDLPack, ErrExchange, "%w; ask for a copy (CopyAlways), which is made in the default context", err)
	}
	device := dlpack.Device{Type: dlpack.DeviceType(typ), ID: id}
	if o.Device != nil && *o.Device != device {
		return dlpack.Device{}, notAsked(o.Device, place)
	}
	return device, nil
}

// notAsked is the error of a copy that is not where it was asked for.
func notAsked(asked *dlpack.Device, place *syclobj.Place) error {
	return opErr(opDLPack, ErrExchange, "%v is asked for and the copy is in %v; give CopyTo memory of that device", *asked, place)
}

// exportFlags puts the array's flags and those of its memory into DLPack's.
func (a *Array) exportFlags(memory uint32) dlpack.Flags {
	var f dlpack.Flags
	if a.flags&flagReadOnly != 0 || memory&owner.ReadOnly != 0 {
		f |= dlpack.ReadOnly
	}
	if a.flags&flagCopied != 0 {
		f |= dlpack.IsCopied
	}
	if a.flags&flagPadded != 0 {
		f |= dlpack.SubBytePadded
	}
	return f
}

// exportSync makes pending work come before the consumer's.
func (a *Array) exportSync(o *ExportOptions) error {
	if o.NoSync {
		return nil
	}
	if o.OnQueue == nil || o.OnQueue.IsHost() {
		if err := a.buf.Wait(); err != nil {
			return wrapErr(opDLPack, nil, err)
		}
		return nil
	}
	if ref := a.buf.PendingEvent(); ref != nil {
		ev := syclobj.TakeEvent(nil, ref)
		defer ev.Close()
		barrier, err := o.OnQueue.Barrier(ev)
		if err != nil {
			return wrapErr(opDLPack, ErrExchange, err)
		}
		_ = barrier.Close() // the order is the queue's; nobody waits for it
	}
	a.buf.UsedOn(o.OnQueue)
	return nil
}

// PendingEvent is an event that is complete when the work that this library
// submitted on the memory is: for consumers that can wait on one (Arrow's
// sync_event, a SYCL queue). The caller closes it. It is nil when nothing is
// pending, and a nil Event is complete.
func (a *Array) PendingEvent() *syclobj.Event {
	a.hold("PendingEvent")
	defer a.buf.Release()
	ref := a.buf.PendingEvent()
	if ref == nil {
		return nil // a nil Event is complete
	}
	return syclobj.TakeEvent(nil, ref)
}

// DLDevice is the DLPack device of the memory (__dlpack_device__): (kDLOneAPI,
// index of the root device), or (kDLCPU, 0) on the host backend. Memory outside
// the default context of its platform has one too, as it has in dpnp: DLPack is
// what refuses it, so that a consumer that asked here first may ask for a copy.
// Errors: ErrExchange when the device is none of the runtime's list.
func (a *Array) DLDevice() (dlpack.Device, error) {
	a.check("DLDevice")
	if d, err := a.place.Device(); err == nil && !a.place.IsDefaultContext() && !a.place.IsHost() {
		if id, err := d.DLPackID(); err == nil {
			return dlpack.OneAPI(id), nil
		}
	}
	return a.exportDevice(&defaultExport)
}

// int64s shows ints as DLPack's integers, without a copy where they are the
// same.
func int64s(v []int) []int64 {
	if intBits == 64 {
		return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
	}
	out := make([]int64, len(v))
	for i, x := range v {
		out[i] = int64(x)
	}
	return out
}

// intBits is the width of Go's int here.
const intBits = 32 << (^uint(0) >> 63)
