// Package sycltest simulates SYCL machines for tests: several platforms, GPUs with tiles, devices with
// much memory or without some kind of USM. It is a fake libDPCTLSyclInterface.so, which the test compiles
// from C. It counts all objects that it creates, fails the n-th call of a function on demand, and completes
// work in the order that the test requests. Using a deleted or foreign reference, freeing an address that
// was not allocated, and accessing device memory from the host end the process, as misuse of the real
// library does.
//
// A process can load one SYCL library only, so a test with a fake machine runs in a separate process:
//
//	func TestSecondGPU(t *testing.T) {
//		sycltest.Child(t, sycltest.TwoGPUs, func(fake *sycltest.Fake) {
//			rt, err := syclobj.Open()
//			...
//		})
//	}
//
// The package is for tests only.
package sycltest

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/usmbridge/usmbridge/syclobj"
)

// Machine lists the platforms and devices of the fake library.
type Machine []Platform

// Platform is one platform and its root devices.
type Platform struct {
	Backend syclobj.Backend
	Name    string
	Devices []Device
}

// Device is one root device.
type Device struct {
	Type   syclobj.DeviceType
	Name   string
	Memory uint64            // bytes; 0 is 1 GiB. Allocations beyond it fail.
	Units  uint32            // compute units; 0 is 8
	Tiles  uint32            // parts by affinity, at most 8; 0 is none
	Lacks  []syclobj.USMKind // kinds of USM that the device does not support
	IPC    bool              // whether its device memory can be opened by other processes

	NoDouble bool // whether it lacks double precision

	// Align, a power of two, is the alignment of its memory in bytes: it refuses larger ones, and no
	// address is aligned to more. 0 means that it grants every alignment.
	Align uint32
}

// Common machines.
var (
	// OneCPU is an OpenCL CPU.
	OneCPU = Machine{{Backend: syclobj.BackendOpenCL, Name: "Fake OpenCL", Devices: []Device{{Type: syclobj.TypeCPU, Name: "Fake CPU"}}}}

	// TwoGPUs is a Level Zero platform with two GPUs of two tiles and 64 GiB
	// each, and an OpenCL platform with a CPU: DLPack ids 0, 1 and 2.
	TwoGPUs = Machine{
		{Backend: syclobj.BackendLevelZero, Name: "Fake Level Zero", Devices: []Device{
			{Type: syclobj.TypeGPU, Name: "Fake GPU A", Memory: 64 << 30, Units: 512, Tiles: 2},
			{Type: syclobj.TypeGPU, Name: "Fake GPU B", Memory: 64 << 30, Units: 512, Tiles: 2},
		}},
		OneCPU[0],
	}

	// CPUFirst lists the CPU's platform before the GPUs', so that a GPU's
	// DLPack id and its number among the GPUs differ.
	CPUFirst = Machine{OneCPU[0], TwoGPUs[0]}

	// NoDevice is a library that works and lists nothing.
	NoDevice = Machine{}
)

// text is the description that the C side reads.
func (m Machine) text() string {
	var b strings.Builder
	b.WriteByte('\n') // so that no device at all is not the default machine
	for _, p := range m {
		fmt.Fprintf(&b, "platform %d %s\n", p.Backend, p.Name)
		for _, d := range p.Devices {
			kinds := uint32(1<<syclobj.USMDevice | 1<<syclobj.USMShared | 1<<syclobj.USMHost)
			for _, k := range d.Lacks {
				kinds &^= 1 << uint(k)
			}
			if d.IPC {
				kinds |= 1 << 8 // FAKE_IPC of the library
			}
			if d.NoDouble {
				kinds |= 1 << 9 // FAKE_NO_DOUBLE
			}
			if d.Align != 0 {
				kinds |= uint32(bits.TrailingZeros32(d.Align)) << 16 // FAKE_ALIGN
			}
			memory, units := d.Memory, d.Units
			if memory == 0 {
				memory = 1 << 30
			}
			if units == 0 {
				units = 8
			}
			fmt.Fprintf(&b, "device %d %d %d %d %d %s\n", d.Type, memory, units, d.Tiles, kinds, d.Name)
		}
	}
	return b.String()
}
