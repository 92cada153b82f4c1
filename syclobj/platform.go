package syclobj

// PlatformInfo is what the runtime says about a platform. It does not change.
type PlatformInfo struct {
	Name    string // "host" for the host backend
	Vendor  string // who makes the driver
	Version string // the driver's own text
	Backend Backend
}

// Platform is a driver with its devices. Platforms belong to the Runtime.
type Platform struct {
	h       handle
	info    PlatformInfo
	devices []*Device
}

// Info is what the runtime says about the platform.
func (p *Platform) Info() PlatformInfo { return p.info }

// Devices lists the root devices in the runtime's order.
func (p *Platform) Devices() []*Device { return append([]*Device(nil), p.devices...) }

// String gives backend and name.
func (p *Platform) String() string { return p.info.Backend.String() + " platform " + p.info.Name }
