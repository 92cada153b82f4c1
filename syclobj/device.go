package syclobj

// DeviceInfo is the runtime's description of a device. It is an immutable value.
type DeviceInfo struct {
	Name          string
	Vendor        string
	DriverVersion string
	Backend       Backend // of its platform
	Type          DeviceType
	GlobalMemSize uint64 // size of its memory in bytes; 0 if unknown
	MaxAllocSize  uint64 // size of the largest allocation in bytes; 0 if unknown
	ComputeUnits  uint32 // parallel compute units
	MaxSubDevices uint32 // maximum number of sub-devices
	HasDouble     bool   // the device computes with 64-bit floating-point numbers
}

// Device is a root device, a sub-device, or the host device. The Runtime owns root devices and the host
// device; the caller of SubDevices owns and closes sub-devices. Methods may be called from several
// goroutines.
type Device struct {
	h        handle
	table    *deviceTable
	info     DeviceInfo
	kinds    uint32 // bit 1<<kind for each supported USM kind
	filter   string
	root     int // DLPack id of the device or its root ancestor, or -1
	parent   *Device
	platform *Platform
	ctx      *Context // default context of a root or the host device
	queue    *Queue   // default queue likewise; nil if none could be created
	sub      bool
	host     bool
}

// Info returns the runtime's description of the device.
func (d *Device) Info() DeviceInfo { return d.info }

// FilterString returns "backend:type:number", which Runtime.Device resolves to this device; "host" for the
// host device. Sub-devices have no filter string; they return that of their root device.
func (d *Device) FilterString() string { return d.filter }

// IsSubDevice reports whether the device is a part of another.
func (d *Device) IsSubDevice() bool { return d.sub }

// IsHost reports whether this is the device of the host backend.
func (d *Device) IsHost() bool { return d.host }

// Supports reports whether memory of this kind can be allocated on the device. The host device supports
// every kind, as host memory.
func (d *Device) Supports(kind USMKind) bool {
	return d.host || (kind > USMUnknown && kind <= USMHost && d.kinds>>uint(kind)&1 != 0)
}

// DLPackID returns the index of the root device (for a sub-device, of its root device) among the runtime's
// root devices: DLPack's device_id for kDLOneAPI. The host device is (kDLCPU, 0) and returns 0.
func (d *Device) DLPackID() (int32, error) {
	if err := notNil("Device.DLPackID", d); err != nil {
		return 0, err
	}
	if d.root < 0 {
		return 0, opErr("Device.DLPackID", ErrNoIndex, "%s", d)
	}
	return int32(d.root), nil
}

// Platform returns the platform of the device; nil if neither the device nor an ancestor is a root device.
func (d *Device) Platform() *Platform { return d.platform }

// Root returns the root device that this device is or is a part of.
func (d *Device) Root() *Device {
	for d.parent != nil {
		d = d.parent
	}
	return d
}

// DefaultContext returns the default context of the device's platform, which the Runtime owns; nil if
// neither the device nor an ancestor is a root device.
func (d *Device) DefaultContext() *Context {
	if d.platform == nil {
		return nil
	}
	return d.platform.devices[0].ctx
}

// DefaultQueue returns an in-order queue on the device in the default context of its platform. It was
// created when the Runtime was opened, and the Runtime owns it. Sub-devices have none: create one with
// Runtime.NewQueue.
func (d *Device) DefaultQueue() (*Queue, error) {
	if err := notNil("Device.DefaultQueue", d); err != nil {
		return nil, err
	}
	if d.queue == nil {
		return nil, opErr("Device.DefaultQueue", ErrFailed, "%s has no default queue; create one with NewQueue", d)
	}
	return d.queue, nil
}

// Equal reports whether both are the same device of the runtime.
func (d *Device) Equal(o *Device) bool {
	return d == o || (d != nil && o != nil && d.host == o.host && !d.host && d.h.equal(&o.h))
}

// Close releases a sub-device. It does nothing on root devices and the host device. It may be called
// repeatedly.
func (d *Device) Close() error {
	if d != nil && d.sub && !d.h.borrowed {
		d.h.close()
	}
	return nil
}

// String returns the filter string and the name.
func (d *Device) String() string {
	if d.sub {
		return "part of " + d.filter + " (" + d.info.Name + ")"
	}
	return d.filter + " (" + d.info.Name + ")"
}

// Partition selects how [Device.SubDevices] splits a device. Set exactly one field. It is a value
// that owns nothing; SubDevices only reads it.
type Partition struct {
	Units  int            // equal parts of this many compute units
	Counts []int          // one part for each entry, of that many compute units
	Domain AffinityDomain // parts along a shared resource; AffinityNextPartitionable gives the tiles of a GPU
}

// SubDevices splits the device. The caller closes each part. Errors: ErrArgument for a partition that
// is invalid or larger than the device, ErrFailed if the device does not support it.
func (d *Device) SubDevices(p Partition) ([]*Device, error) {
	const op = "Device.SubDevices"
	if err := notNil(op, d); err != nil {
		return nil, err
	}
	counts := p.Counts
	if p.Units != 0 {
		counts = []int{p.Units}
	}
	set, sum, units := 0, uint64(0), uint64(d.info.ComputeUnits)
	for _, given := range []bool{p.Units != 0, len(p.Counts) > 0, p.Domain != 0} {
		if given {
			set++
		}
	}
	list := make([]uint, len(counts))
	for i, n := range counts {
		if n <= 0 || uint64(n) > units {
			return nil, opErr(op, ErrArgument, "a part of %d compute units; %s has %d", n, d, units)
		}
		list[i] = uint(n)
		sum += uint64(n)
	}
	switch {
	case set != 1:
		return nil, opErr(op, ErrArgument, "%d fields of the Partition are set; set Units, Counts or Domain", set)
	case p.Domain != 0:
		if p.Domain < AffinityNUMA || p.Domain > AffinityNextPartitionable {
			return nil, opErr(op, ErrArgument, "domain %d", p.Domain)
		}
		return d.split(op, nil, 0, int(p.Domain))
	case sum > units:
		return nil, opErr(op, ErrArgument, "%d parts of %d compute units together; %s has %d", len(counts), sum, d, units)
	case p.Units != 0:
		return d.split(op, nil, list[0], 0)
	}
	return d.split(op, list, uint(len(list)), 0)
}

func (d *Device) split(op string, counts []uint, n uint, domain int) ([]*Device, error) {
	if d.host {
		return nil, opErr(op, ErrArgument, "the host device cannot be split")
	}
	ref, ok := d.h.use()
	if !ok {
		return nil, &OpError{Op: op, Kind: ErrClosed}
	}
	defer d.h.done()
	if err := d.table.need(op); err != nil {
		return nil, err
	}
	refs, code := deviceSplit(ref, counts, n, domain)
	if code != codeOK {
		return nil, opErr(op, code, "%s cannot be split this way", d)
	}
	parts := make([]*Device, len(refs))
	for i, r := range refs {
		parts[i] = d.table.newDevice(r, d)
	}
	return parts, nil
}

// newDevice returns a Device that owns ref, which is not a root device. If parent is nil, it is
// looked up among the roots.
func (t *deviceTable) newDevice(ref ref, parent *Device) *Device {
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

// PlatformInfo is the runtime's description of a platform. It is an immutable value.
type PlatformInfo struct {
	Name    string // "host" for the host backend
	Vendor  string // of the driver
	Version string // as the driver reports it
	Backend Backend
}

// Platform is a driver with its devices. The Runtime owns it. Methods may be called from several
// goroutines.
type Platform struct {
	h       handle
	info    PlatformInfo
	devices []*Device
}

// Info returns the runtime's description of the platform.
func (p *Platform) Info() PlatformInfo { return p.info }

// Devices lists the root devices in the runtime's order.
func (p *Platform) Devices() []*Device { return append([]*Device(nil), p.devices...) }
