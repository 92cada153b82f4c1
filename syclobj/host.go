package syclobj

import "runtime"

// The host backend of every Runtime: one platform, one device, one context, one place.
// They own nothing and are never closed.
var (
	hostDevice = newHostDevice()
	hostPlace  = &Place{dlType: dlpackCPU, filter: HostFilter, isDefault: true}
)

// dlpackCPU is DLPack's kDLCPU.
const dlpackCPU = 1

func newHostDevice() *Device {
	d := &Device{host: true, filter: HostFilter, info: DeviceInfo{
		Name:          "Go host backend",
		Vendor:        runtime.GOOS + "/" + runtime.GOARCH,
		DriverVersion: runtime.Version(),
		Backend:       BackendHost,
		Type:          TypeHost,
		GlobalMemSize: hostMemorySize(),
		ComputeUnits:  uint32(runtime.NumCPU()),
		HasDouble:     true,
	}}
	d.h.init(nil, sortDevice)
	d.platform = &Platform{devices: []*Device{d}, info: PlatformInfo{
		Name: HostFilter, Vendor: d.info.Vendor, Version: d.info.DriverVersion, Backend: BackendHost}}
	d.platform.h.init(nil, sortPlatform)
	d.ctx = &Context{host: true, shared: true, root: -1}
	d.ctx.h.init(nil, sortContext)
	d.queue = newHostQueue(d.ctx, d)
	d.queue.shared = true
	return d
}

// newHostQueue returns a queue that executes work at submission.
func newHostQueue(ctx *Context, d *Device) *Queue {
	q := &Queue{ctx: ctx, device: d, host: true, properties: InOrder}
	q.h.init(nil, sortQueue)
	return q
}
