package syclobj

import "runtime"

// The host backend: one platform, one device, one context, in every Runtime.
// They hold nothing and are never closed.
var (
	hostDevice = newHostDevice()
	hostPlace  = &Place{dlType: dlpackCPU, filter: HostFilter, isDefault: true}
)

// dlpackCPU is DLPack's kDLCPU.
const dlpackCPU = 1

func newHostDevice() *Device {
	d := &Device{host: true, filter: HostFilter, facts: deviceFacts{
		name:    "Go host backend",
		vendor:  runtime.GOOS + "/" + runtime.GOARCH,
		driver:  runtime.Version(),
		backend: BackendHost,
		kind:    TypeHost,
		units:   uint32(runtime.NumCPU()),
	}}
	d.h.init(nil, sortDevice)
	d.facts.globalMem = hostMemorySize()
	d.platform = &Platform{devices: []*Device{d}, facts: platformFacts{
		name: HostFilter, vendor: d.facts.vendor, version: d.facts.driver, backend: BackendHost}}
	d.platform.h.init(nil, sortPlatform)
	d.ctx = &Context{host: true, shared: true, root: -1}
	d.ctx.h.init(nil, sortContext)
	d.queue = newHostQueue(d.ctx, d)
	d.queue.shared = true
	return d
}

// newHostQueue makes a queue whose work is done when it is submitted.
func newHostQueue(ctx *Context, d *Device) *Queue {
	q := &Queue{ctx: ctx, device: d, host: true, inOrder: true}
	q.h.init(nil, sortQueue)
	return q
}
