package dlpack

import (
	"fmt"
	"strings"
)

// DeviceType is the type of a device (DLDeviceType of the standard).
type DeviceType int32

// The device types of DLPack 1.3.
const (
	DeviceCPU         DeviceType = 1
	DeviceCUDA        DeviceType = 2
	DeviceCUDAHost    DeviceType = 3 // pinned host memory of CUDA
	DeviceOpenCL      DeviceType = 4 // data is a cl_mem handle
	DeviceVulkan      DeviceType = 7
	DeviceMetal       DeviceType = 8
	DeviceVPI         DeviceType = 9
	DeviceROCM        DeviceType = 10
	DeviceROCMHost    DeviceType = 11 // pinned host memory of ROCm
	DeviceExtDev      DeviceType = 12
	DeviceCUDAManaged DeviceType = 13
	DeviceOneAPI      DeviceType = 14 // SYCL unified shared memory; the id is the root device's index
	DeviceWebGPU      DeviceType = 15
	DeviceHexagon     DeviceType = 16
	DeviceMAIA        DeviceType = 17
	DeviceTrn         DeviceType = 18
)

var deviceNames = [...]string{
	DeviceCPU: "kDLCPU", DeviceCUDA: "kDLCUDA", DeviceCUDAHost: "kDLCUDAHost", DeviceOpenCL: "kDLOpenCL",
	DeviceVulkan: "kDLVulkan", DeviceMetal: "kDLMetal", DeviceVPI: "kDLVPI", DeviceROCM: "kDLROCM",
	DeviceROCMHost: "kDLROCMHost", DeviceExtDev: "kDLExtDev", DeviceCUDAManaged: "kDLCUDAManaged",
	DeviceOneAPI: "kDLOneAPI", DeviceWebGPU: "kDLWebGPU", DeviceHexagon: "kDLHexagon",
	DeviceMAIA: "kDLMAIA", DeviceTrn: "kDLTrn",
}

// String returns the standard's name ("kDLOneAPI"), or "DeviceType(99)".
func (t DeviceType) String() string {
	if t.known() {
		return deviceNames[t]
	}
	return fmt.Sprintf("DeviceType(%d)", int32(t))
}

// known reports whether DLPack 1.3 defines the type.
func (t DeviceType) known() bool {
	return t >= 0 && int(t) < len(deviceNames) && deviceNames[t] != ""
}

// IsHandle reports whether the data field of a tensor on such a device is a handle, not an address
// (OpenCL, Vulkan, Metal, WebGPU). A byte offset is then kept separately.
func (t DeviceType) IsHandle() bool {
	return t == DeviceOpenCL || t == DeviceVulkan || t == DeviceMetal || t == DeviceWebGPU
}

// Device is the location of memory (DLDevice): a type and an index, 0 for host memory. It is a comparable
// value; the zero value is no device.
type Device struct {
	Type DeviceType
	ID   int32
}

// CPU is the host: (kDLCPU, 0).
var CPU = Device{DeviceCPU, 0}

// OneAPI returns the kDLOneAPI device with the index of a root device in the SYCL runtime's list.
func OneAPI(index int32) Device { return Device{DeviceOneAPI, index} }

// String returns the form "kDLOneAPI:0".
func (d Device) String() string { return fmt.Sprintf("%s:%d", d.Type, d.ID) }

// HostReadable reports whether the host can read the device's memory at its address, by the definition of
// the device type: kDLCPU and pinned host memory. kDLOneAPI memory may be readable too, but the device
// type does not determine it.
func (d Device) HostReadable() bool {
	return d.Type == DeviceCPU || d.Type == DeviceCUDAHost || d.Type == DeviceROCMHost
}

// Version is a DLPack version (DLPackVersion), a comparable value. Tensors of the same major version have
// the same layout.
type Version struct {
	Major, Minor uint32
}

// CurrentVersion is the version that this package writes: 1.3.
var CurrentVersion = Version{1, 3}

// String returns the form "1.3".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Flags are the properties of a versioned tensor (DLPACK_FLAG_BITMASK_*).
type Flags uint64

// The flags of DLPack 1.3.
const (
	ReadOnly      Flags = 1 // the consumer must not write
	IsCopied      Flags = 2 // the producer made a copy for this consumer
	SubBytePadded Flags = 4 // elements of less than a byte take a byte each
	knownFlags          = ReadOnly | IsCopied | SubBytePadded
)

// String returns the form "READ_ONLY|IS_COPIED", or "0".
func (f Flags) String() string {
	var parts []string
	for _, n := range []struct {
		flag Flags
		name string
	}{{ReadOnly, "READ_ONLY"}, {IsCopied, "IS_COPIED"}, {SubBytePadded, "IS_SUBBYTE_TYPE_PADDED"}} {
		if f&n.flag != 0 {
			parts = append(parts, n.name)
		}
	}
	if rest := f &^ knownFlags; rest != 0 {
		parts = append(parts, fmt.Sprintf("%#x", uint64(rest)))
	}
	if parts == nil {
		return "0"
	}
	return strings.Join(parts, "|")
}

// Negotiate chooses the struct for a consumer's max_version. nil (not given) and a lower major version
// select the legacy struct; the same or a higher major version selects the versioned struct of
// [CurrentVersion]. flags are those of the memory. Errors: [ErrReadOnly] or [ErrLegacy] if the legacy
// struct cannot express a flag.
func Negotiate(maxVersion *Version, flags Flags) (versioned bool, err error) {
	switch {
	case maxVersion != nil && maxVersion.Major >= CurrentVersion.Major:
		return true, nil
	case flags&ReadOnly != 0:
		return false, opErr("Negotiate", ErrReadOnly, "the legacy struct has no read-only flag: ask with max_version=(1, 0) or newer, or copy")
	case flags&SubBytePadded != 0:
		return false, opErr("Negotiate", ErrLegacy, "the legacy struct cannot express that sub-byte elements are padded: ask with max_version=(1, 0) or newer, or pack them")
	}
	return false, nil
}
