package usmarray

import (
	"unsafe"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// CopyMode determines whether an export may or must copy.
type CopyMode uint8

const (
	// CopyMaybe copies if the request requires it (None in Python).
	CopyMaybe CopyMode = iota
	// CopyAlways copies, and marks the tensor IS_COPIED.
	CopyAlways
	// CopyNever fails if a copy would be needed.
	CopyNever
)

// ExportOptions are a consumer's requests to DLPackWith, a value that owns nothing. The zero value
// requests nothing.
type ExportOptions struct {
	// OnQueue is the consumer's queue. A barrier orders it after the work that this
	// library submitted on the memory, instead of a wait on the host.
	OnQueue *syclobj.Queue
	// NoSync neither waits nor submits a barrier (stream -1 in Python): the consumer
	// synchronizes itself.
	NoSync bool
	// MaxVersion is the newest DLPack version that the consumer supports. A lower major
	// version than 1 selects the legacy struct. Zero means this library's version.
	MaxVersion dlpack.Version
	// Legacy requests the struct without a version (no max_version in Python).
	// Read-only memory is then refused, because that struct cannot express it.
	Legacy bool
	// Device requests a device. (kDLCPU, 0) of shared and host USM, in any context,
	// is the same memory without a copy, after waiting for pending work;
	// of device memory it is a copy. Another device is a copy
	// in the memory of the CopyTo resource. Nil means the memory's own device.
	Device *dlpack.Device
	// CUDA requests the device under which libraries of CUDA know memory of SYCL's
	// CUDA backend, after waiting for pending work: kDLCUDA for device and shared
	// USM, with CUDA's number of the device, which may differ from the positions in
	// SYCL's lists, and (kDLCUDAHost, 0) for host USM. Device may name it instead,
	// or kDLCUDAManaged for shared USM. From then on, host accesses, copies and the
	// reuse of the memory come after all work of CUDA on the device.
	CUDA bool
	// Copy forces or forbids a copy. Only the tensor refers to a copy, and
	// IS_COPIED is set. A copy of USM is in the same kind of memory of the default
	// context of its device, from memmgr.Default, unless CopyTo says otherwise.
	Copy CopyMode
	// CopyTo is the resource from which a copy is allocated.
	CopyTo memmgr.Resource
	// XPU applies the rules of imports in Intel Extension for PyTorch: USM
	// device memory in the default context of its platform. Other memory is an
	// ErrExchange that names the violated rule.
	XPU bool
}

// DLPack exports the array as an owned DLPack tensor that shares the memory: a kDLOneAPI tensor for USM in
// the default context of its platform, kDLCPU on the host backend. The tensor holds its own reference of
// the memory. The caller releases it, detaches it, or gives it to a consumer. DLPack waits for pending
// work first, as [Array.USMInterface] does: a consumer that works on another queue than that of the memory's
// place gives it to [Array.DLPackWith].
//
// The library cannot observe the consumer's work on the memory: a consumer with its own queue must finish
// before it releases the tensor.
//
// Errors: ErrExchange for memory outside the default context of its platform (the error suggests a copy)
// and packed elements that begin within a byte.
func (a *Array) DLPack() (dlpack.Tensor, error) {
	a.hold(opDLPack)
	t, err := a.export(&defaultExport)
	if err != nil {
		a.buf.Release()
	}
	return t, err
}

var defaultExport = ExportOptions{MaxVersion: dlpack.CurrentVersion}

// DLPackWith is DLPack with a consumer's requests. Errors: ErrExchange, also for read-only memory as a
// legacy tensor, for devices other than kDLCPU, kDLOneAPI and CUDA's, and for other requests that cannot be met.
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

// exportWith copies first if the options require it.
func (a *Array) exportWith(o *ExportOptions) (dlpack.Tensor, error) {
	to, asCPU, err := a.copyTarget(o)
	if err != nil {
		return dlpack.Tensor{}, err
	}
	if to == nil {
		if o.Device != nil && asCPU {
			o.NoSync, o.OnQueue = false, nil // a CPU consumer reads immediately
		}
		return a.export(o)
	}
	if o.Copy == CopyNever {
		return dlpack.Tensor{}, opErr(opDLPack, ErrExchange, "%v would have to be copied for this request, and copying is forbidden; allow it or use ToDevice", a.place)
	}
	b, err := a.copyInto(opDLPack, to, []Option{func(o *options) { o.kept = true }})
	if err != nil {
		return dlpack.Tensor{}, err
	}
	b.flags |= flagCopied
	defer b.Release()
	b.hold(opDLPack)
	t, err := b.export(o)
	if err != nil {
		b.buf.Release()
		return dlpack.Tensor{}, err
	}
	a.buf.Release()
	return t, nil
}

// copyTarget decides whether the request needs a copy, and from which resource: nil for none. asCPU
// reports whether the memory is exported as kDLCPU.
func (a *Array) copyTarget(o *ExportOptions) (to memmgr.Resource, asCPU bool, err error) {
	place := a.place
	if o.forCUDA() {
		if _, err := a.exportCUDA(o); err != nil {
			return nil, false, err
		}
	}
	if o.Device == nil || isCUDA(*o.Device) {
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
			return nil, false, opErr(opDLPack, ErrExchange, "%v is requested and the memory is %v; set CopyTo to a resource for the copy", *o.Device, place)
		}
		to, err = a.sameMemory(o)
		return to, false, err
	}
	return nil, false, opErr(opDLPack, ErrExchange, "%v is requested; this library exports (kDLCPU, 0), kDLOneAPI and devices of CUDA", *o.Device)
}

// sameMemory returns the resource for a copy in memory of the same kind and device, in the default
// context.
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

// export builds the tensor of this memory, which is held. On success the tensor takes over that reference.
func (a *Array) export(o *ExportOptions) (dlpack.Tensor, error) {
	device, err := a.exportDevice(o)
	if err != nil {
		return dlpack.Tensor{}, err
	}
	cell := cells.Of(a.buf)
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
	if memory&(owner.Seen|owner.Alias|owner.Failed|owner.UsedBits) != 0 || cell.Pending() != 0 || o.OnQueue != nil {
		if err := a.exportSync(o, device); err != nil {
			return dlpack.Tensor{}, err
		}
	}
	bits := a.elemBits()
	if a.layout.offset*bits%8 != 0 {
		return dlpack.Tensor{}, opErr(opDLPack, ErrExchange, "the first %s element begins within a byte, which DLPack cannot express; Copy first", a.dtype)
	}
	exported := owner.Exported
	if isCUDA(device) {
		exported = owner.CUDA
	}
	if memory&exported == 0 { // reading is cheaper than setting
		cell.SetFlags(exported)
		if memory&owner.Alias != 0 {
			cell.Record().SetFlags(exported)
		}
	}
	var view dlpack.View // setting the fields is faster than a literal
	view.Data = pointerAt(cell.Address + uintptr(a.layout.offset*bits/8))
	view.Device = device
	view.DataType = a.dtype
	view.Shape, view.Strides = int64s(a.layout.shape), int64s(a.layout.strides)
	drop := owner.DropFunc()
	observed := device.HostReadable() && cell.Record().Place != 0 // USM as memory of the host
	if observed {
		cell.Observe()
		drop = owner.DropObservedFunc()
	}
	t, err := dlpack.Export(&view, flags, versioned, dlpack.Owner{Drop: drop, Ctx: cell.Pointer()})
	if err != nil {
		if observed {
			cell.Unobserve()
		}
		return dlpack.Tensor{}, wrapErr(opDLPack, ErrExchange, err)
	}
	return t, nil
}

// exportDevice returns the DLPack device under which the memory is exported.
func (a *Array) exportDevice(o *ExportOptions) (dlpack.Device, error) {
	place := a.place
	if o.XPU {
		if err := checkXPU(opDLPack, place); err != nil {
			return dlpack.Device{}, err
		}
	}
	if o.Device != nil && o.Device.Type == dlpack.DeviceCPU {
		if !a.buf.HostReadable() { // a copy in CopyTo's memory
			return dlpack.Device{}, wrongDevice(o.Device, place)
		}
		return dlpack.CPU, nil
	}
	if o.forCUDA() {
		return a.exportCUDA(o)
	}
	typ, id, err := place.DLPackDevice()
	if err != nil {
		return dlpack.Device{}, opErr(opDLPack, ErrExchange, "%w; request a copy (CopyAlways), which is made in the default context", err)
	}
	device := dlpack.Device{Type: dlpack.DeviceType(typ), ID: id}
	if o.Device != nil && *o.Device != device {
		return dlpack.Device{}, wrongDevice(o.Device, place)
	}
	return device, nil
}

// wrongDevice returns the error of a copy on another device than the requested one.
func wrongDevice(requested *dlpack.Device, place *syclobj.Place) error {
	return opErr(opDLPack, ErrExchange, "%v is requested and the copy is in %v; set CopyTo to a resource of that device", *requested, place)
}

// exportFlags converts the flags of the array and of its memory to DLPack's.
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

// exportSync waits for pending work, or orders the consumer's queue after it.
func (a *Array) exportSync(o *ExportOptions, device dlpack.Device) error {
	if o.NoSync {
		return nil
	}
	if o.forCUDA() || device.HostReadable() { // its consumer works on no queue
		if err := a.buf.Wait(); err != nil {
			return wrapErr(opDLPack, nil, err)
		}
		return nil
	}
	if o.OnQueue == nil || o.OnQueue.IsHost() {
		if err := a.buf.WaitForOthers(); err != nil {
			return wrapErr(opDLPack, nil, err)
		}
		return nil
	}
	if err := a.buf.ExportOn(o.OnQueue); err != nil {
		return wrapErr(opDLPack, ErrExchange, err)
	}
	return nil
}

// PendingEvent returns an event that completes with the work for which Wait waits, for consumers that can
// wait for one (Arrow's sync_event, a SYCL queue). The caller closes it. It is nil if nothing is pending; a
// nil Event is complete.
func (a *Array) PendingEvent() *syclobj.Event {
	a.hold("PendingEvent")
	defer a.buf.Release()
	ref := a.buf.PendingEvent()
	if ref == nil {
		return nil
	}
	return syclobj.TakeEvent(nil, ref)
}

// DLDevice returns the DLPack device of the memory (__dlpack_device__): (kDLOneAPI, index of the root
// device), or (kDLCPU, 0) on the host backend. As in dpnp, memory outside the default context of its
// platform has one too; DLPack refuses such memory, and a consumer that called DLDevice first can request
// a copy. Errors: ErrExchange if the device is not in the runtime's list.
func (a *Array) DLDevice() (dlpack.Device, error) {
	a.check("DLDevice")
	if d, err := a.place.Device(); err == nil && !a.place.IsDefaultContext() && !a.place.IsHost() {
		if id, err := d.DLPackID(); err == nil {
			return dlpack.OneAPI(id), nil
		}
	}
	return a.exportDevice(&defaultExport)
}

// int64s converts ints to DLPack's integers, without a copy if they have the same width.
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

// intBits is the width of Go's int.
const intBits = 32 << (^uint(0) >> 63)
