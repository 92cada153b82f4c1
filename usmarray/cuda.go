package usmarray

import (
	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray/internal/cuda"
)

// isCUDA reports whether a device is one of CUDA.
func isCUDA(d dlpack.Device) bool {
	return d.Type == dlpack.DeviceCUDA || d.Type == dlpack.DeviceCUDAHost || d.Type == dlpack.DeviceCUDAManaged
}

// forCUDA reports whether the request is that of a library of CUDA.
func (o *ExportOptions) forCUDA() bool { return o.CUDA || o.Device != nil && isCUDA(*o.Device) }

// exportCUDA returns the device under which libraries of CUDA know the memory, if it is the requested one.
func (a *Array) exportCUDA(o *ExportOptions) (dlpack.Device, error) {
	ordinal, err := cuda.Ordinal(a.place)
	if err != nil {
		return dlpack.Device{}, opErr(opDLPack, ErrExchange, "kDLCUDA is requested and the memory is %v: %w", a.place, err)
	}
	d := dlpack.Device{Type: dlpack.DeviceCUDA, ID: ordinal}
	if a.place.Kind() == syclobj.USMHost {
		d = dlpack.Device{Type: dlpack.DeviceCUDAHost}
	}
	if o.Device == nil || *o.Device == d {
		return d, nil
	}
	if managed := (dlpack.Device{Type: dlpack.DeviceCUDAManaged, ID: ordinal}); a.place.Kind() == syclobj.USMShared && *o.Device == managed {
		return managed, nil
	}
	return dlpack.Device{}, opErr(opDLPack, ErrExchange, "%v is requested and the memory is %v, which is %v; copy it (ToDevice)", *o.Device, a.place, d)
}
