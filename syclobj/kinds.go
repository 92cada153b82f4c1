package syclobj

import "strconv"

// USMKind is a kind of unified shared memory, with SYCL's numbers.
type USMKind int32

// The kinds. Memory of the host backend is USMUnknown, because it belongs to no SYCL context.
const (
	USMUnknown USMKind = iota // not unified shared memory of the given context
	USMDevice                 // on the device; the host cannot read it
	USMShared                 // migrates between host and device
	USMHost                   // on the host, readable by the device
)

// String returns the name in Python's interfaces: "device", "shared", "host", or "unknown".
func (k USMKind) String() string {
	switch k {
	case USMUnknown:
		return "unknown"
	case USMDevice:
		return "device"
	case USMShared:
		return "shared"
	case USMHost:
		return "host"
	}
	return "USMKind(" + strconv.Itoa(int(k)) + ")"
}

// Backend is the backend of a SYCL platform.
type Backend int32

// The backends. BackendHost is this package's own.
const (
	BackendUnknown   Backend = 0
	BackendCUDA      Backend = 1 << 16
	BackendLevelZero Backend = 1 << 17
	BackendOpenCL    Backend = 1 << 18
	BackendHIP       Backend = 1 << 19
	BackendHost      Backend = 1 << 30
)

var backendNames = map[Backend]string{
	BackendUnknown:   "unknown",
	BackendCUDA:      "cuda",
	BackendLevelZero: "level_zero",
	BackendOpenCL:    "opencl",
	BackendHIP:       "hip",
	BackendHost:      "host",
}

// String returns the name in filter strings, such as "opencl".
func (b Backend) String() string {
	if name, ok := backendNames[b]; ok {
		return name
	}
	return "Backend(" + strconv.Itoa(int(b)) + ")"
}

// DeviceType is the type of a device.
type DeviceType int32

// The device types. TypeHost is the device of the host backend.
const (
	TypeUnknown     DeviceType = 0
	TypeAccelerator DeviceType = 1 << 0
	TypeCPU         DeviceType = 1 << 2
	TypeCustom      DeviceType = 1 << 3
	TypeGPU         DeviceType = 1 << 4
	TypeHost        DeviceType = 1 << 30
)

var typeNames = map[DeviceType]string{
	TypeUnknown:     "unknown",
	TypeAccelerator: "accelerator",
	TypeCPU:         "cpu",
	TypeCustom:      "custom",
	TypeGPU:         "gpu",
	TypeHost:        "host",
}

// String returns the name in filter strings, such as "gpu".
func (t DeviceType) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return "DeviceType(" + strconv.Itoa(int(t)) + ")"
}

// QueueProperty is a set of properties of a queue.
type QueueProperty uint32

// Properties; combine them with |. A queue is in-order unless OutOfOrder is requested.
const (
	InOrder    QueueProperty = 1 << 0 // each submission starts after the one before
	Profiling  QueueProperty = 1 << 1 // events record when they were submitted, started and ended
	OutOfOrder QueueProperty = 1 << 2 // independent submissions may run in any order
)

// AffinityDomain selects the shared resource along which a device is split.
type AffinityDomain int32

// The domains of sycl::info::partition_affinity_domain.
const (
	AffinityNUMA AffinityDomain = iota + 1
	AffinityL4Cache
	AffinityL3Cache
	AffinityL2Cache
	AffinityL1Cache
	AffinityNextPartitionable // the largest part that can be split; tiles of a GPU
)
