package usmarray

import (
	"github.com/usmbridge/usmbridge/syclobj"
)

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
