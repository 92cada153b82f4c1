package syclobj

import (
	"unsafe"
)

// DeviceInfo is what the runtime says about a device. It does not change.
type DeviceInfo struct {
	Name          string
	Vendor        string // who makes it
	DriverVersion string
	Backend       Backend // what its platform runs on
	Type          DeviceType
	GlobalMemSize uint64 // bytes of its memory; 0 when unknown
	MaxAllocSize  uint64 // bytes of the largest single allocation; 0 when unknown
	ComputeUnits  uint32 // parallel compute units
	MaxSubDevices uint32 // into how many parts it can be split, at most
}

// Device is a root device, a part of one, or the host device. Root devices and
// the host device belong to the Runtime; sub-devices are closed by whoever
// asked for them.
type Device struct {
	h        handle
	table    *deviceTable
	info     DeviceInfo
	kinds    uint32 // bit 1<<kind for each USM kind it supports, and deviceDouble
	filter   string
	root     int // DLPack id of the device or its root ancestor, -1 when none
	parent   *Device
	platform *Platform
	ctx      *Context // default context; of roots and the host device
	queue    *Queue   // default queue; likewise, nil when none could be made
	sub      bool
	host     bool
}

// Info is what the runtime says about the device.
func (d *Device) Info() DeviceInfo { return d.info }

// FilterString is "backend:type:number", which Runtime.Device resolves to this
// device again; "host" for the host device. For a sub-device it is that of the
// root device it was split from, because sub-devices have none.
func (d *Device) FilterString() string { return d.filter }

// IsSubDevice reports whether the device was split from another.
func (d *Device) IsSubDevice() bool { return d.sub }

// IsHost reports whether this is the device of the host backend.
func (d *Device) IsHost() bool { return d.host }

// Supports reports whether memory of this kind can be allocated on the device.
// The host device takes every kind for what it is: host memory.
func (d *Device) Supports(kind USMKind) bool {
	return d.host || (kind > USMUnknown && kind <= USMHost && d.kinds>>uint(kind)&1 != 0)
}

// HasDouble reports whether the device computes with 64-bit floating-point numbers. The host
// device does.
func (d *Device) HasDouble() bool { return d.host || d.kinds&deviceDouble != 0 }

// DLPackID is the index of the root device (of the parent root device, for a
// sub-device) among the runtime's root devices, DLPack's device_id for
// kDLOneAPI. The host device is (kDLCPU, 0) and gives 0.
func (d *Device) DLPackID() (int32, error) {
	if err := notNil("Device.DLPackID", d); err != nil {
		return 0, err
	}
	if d.root < 0 {
		return 0, opErr("Device.DLPackID", ErrNoIndex, "%s", d)
	}
	return int32(d.root), nil
}

// Platform is the platform of the device; nil for a device that is no root
// device nor part of one.
func (d *Device) Platform() *Platform { return d.platform }

// Parent is the device that this one was split from, nil for a root device. It
// belongs to the Runtime, or to whoever owns it.
func (d *Device) Parent() *Device { return d.parent }

// Root is the root device that this one is, or is part of.
func (d *Device) Root() *Device {
	for d.parent != nil {
		d = d.parent
	}
	return d
}

// DefaultContext is the default context of the device's platform. It belongs
// to the Runtime. It is nil for a device that is no root device nor part of one.
func (d *Device) DefaultContext() *Context {
	if d.platform == nil {
		return nil
	}
	return d.platform.devices[0].ctx
}

// DefaultQueue is an in-order queue on the device in the default context of its
// platform, made when the Runtime was opened and belonging to it. Sub-devices
// have none: make one with Runtime.NewQueue.
func (d *Device) DefaultQueue() (*Queue, error) {
	if err := notNil("Device.DefaultQueue", d); err != nil {
		return nil, err
	}
	if d.queue == nil {
		return nil, opErr("Device.DefaultQueue", ErrFailed, "%s has no default queue; make one with NewQueue", d)
	}
	return d.queue, nil
}

// Equal reports whether both are the same device of the runtime.
func (d *Device) Equal(o *Device) bool {
	return d == o || (d != nil && o != nil && d.host == o.host && !d.host && d.h.equal(&o.h))
}

// Ref is the sycl::device*, borrowed; nil for the host device and after Close.
func (d *Device) Ref() unsafe.Pointer { return d.h.get() }

// Close gives a sub-device up. On root devices and the host device it does
// nothing. It may be called again.
func (d *Device) Close() error {
	if d != nil && d.sub && !d.h.borrowed {
		d.h.close()
	}
	return nil
}

// String gives the filter string and the name.
func (d *Device) String() string {
	if d.sub {
		return "part of " + d.filter + " (" + d.info.Name + ")"
	}
	return d.filter + " (" + d.info.Name + ")"
}

// SubDevicesEqually splits the device into parts of that many compute units.
// The caller closes each part.
func (d *Device) SubDevicesEqually(units int) ([]*Device, error) {
	const op = "Device.SubDevicesEqually"
	if err := notNil(op, d); err != nil {
		return nil, err
	}
	if units <= 0 || uint64(units) > uint64(d.info.ComputeUnits) {
		return nil, opErr(op, ErrArgument, "parts of %d compute units; %s has %d", units, d, d.info.ComputeUnits)
	}
	return d.split(op, nil, uint(units), 0)
}

// SubDevicesByCounts splits the device into parts of these numbers of compute
// units. The caller closes each part.
func (d *Device) SubDevicesByCounts(counts ...int) ([]*Device, error) {
	const op = "Device.SubDevicesByCounts"
	if err := notNil(op, d); err != nil {
		return nil, err
	}
	sum := uint64(0)
	list := make([]uint, len(counts))
	for i, n := range counts {
		if n <= 0 || uint64(n) > uint64(d.info.ComputeUnits) {
			return nil, opErr(op, ErrArgument, "a part of %d compute units; %s has %d", n, d, d.info.ComputeUnits)
		}
		list[i] = uint(n)
		sum += uint64(n)
	}
	if len(counts) == 0 || sum > uint64(d.info.ComputeUnits) {
		return nil, opErr(op, ErrArgument, "%d parts of %d compute units together; %s has %d", len(counts), sum, d, d.info.ComputeUnits)
	}
	return d.split(op, list, uint(len(list)), 0)
}

// SubDevicesByAffinity splits the device along a shared resource; tiles of a
// GPU come with AffinityNextPartitionable. The caller closes each part.
func (d *Device) SubDevicesByAffinity(domain AffinityDomain) ([]*Device, error) {
	const op = "Device.SubDevicesByAffinity"
	if err := notNil(op, d); err != nil {
		return nil, err
	}
	if domain < AffinityNUMA || domain > AffinityNextPartitionable {
		return nil, opErr(op, ErrArgument, "domain %d", domain)
	}
	return d.split(op, nil, 0, int(domain))
}

func (d *Device) split(op string, counts []uint, n uint, domain int) ([]*Device, error) {
	if d.host {
		return nil, opErr(op, ErrArgument, "the host device cannot be split")
	}
	ref, ok := d.h.use()
	if !ok {
		return nil, &OpError{Op: op, Err: ErrClosed}
	}
	defer d.h.done()
	if err := d.table.need(op); err != nil {
		return nil, err
	}
	refs, code := deviceSplit(ref, counts, n, domain)
	if code != codeOK {
		return nil, opErr(op, code, "%s cannot be split like that", d)
	}
	parts := make([]*Device, len(refs))
	for i, r := range refs {
		parts[i] = d.table.wrapDevice(r, d)
	}
	return parts, nil
}

// wrapDevice makes an owning Device of a reference that is no root device. The
// parent is found among the roots when it is not given.
func (t *deviceTable) wrapDevice(ref ref, parent *Device) *Device {
	d := &Device{table: t, sub: true}
	d.h.init(ref, sortDevice)
	d.describe()
	if parent == nil && d.root >= 0 && d.root < len(t.roots) {
		parent = t.roots[d.root]
	}
	d.parent = parent
	if parent != nil {
		d.platform, d.filter = parent.platform, parent.filter
	}
	return d
}
