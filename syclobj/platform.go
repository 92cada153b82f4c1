package syclobj

type platformFacts struct {
	name, vendor, version string
	hash                  uint64
	backend               Backend
}

// Platform is a driver with its devices. Platforms belong to the Runtime.
type Platform struct {
	h       handle
	facts   platformFacts
	devices []*Device
}

// Name is the platform's name, "host" for the host backend.
func (p *Platform) Name() string { return p.facts.name }

// Vendor is who makes the driver.
func (p *Platform) Vendor() string { return p.facts.vendor }

// Version is the driver's version text.
func (p *Platform) Version() string { return p.facts.version }

// Backend says what the platform runs on.
func (p *Platform) Backend() Backend { return p.facts.backend }

// Devices lists the root devices in the runtime's order.
func (p *Platform) Devices() []*Device { return append([]*Device(nil), p.devices...) }

// DefaultContext is the context over all devices of the platform that queues
// get when none is named. It belongs to the Runtime.
func (p *Platform) DefaultContext() *Context { return p.devices[0].ctx }

// Equal reports whether both are the same platform of the runtime.
func (p *Platform) Equal(o *Platform) bool { return p == o || (o != nil && p.h.equal(&o.h)) }

// Hash is the runtime's own hash; equal platforms have equal hashes.
func (p *Platform) Hash() uint64 { return p.facts.hash }

// String gives backend and name.
func (p *Platform) String() string { return p.facts.backend.String() + " platform " + p.facts.name }
