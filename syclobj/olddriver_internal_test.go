package syclobj

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForgetsBlocks tests the detection. The tests of memmgr with dpctl 0.17 (make test-versions) show the
// effect: there several goroutines free and allocate, which crashes without the lock.
func TestForgetsBlocks(t *testing.T) {
	intel := DeviceInfo{Vendor: "Intel(R) Corporation", Backend: BackendOpenCL, Type: TypeCPU}
	for version, want := range map[string]bool{
		"2024.18.7.0.11_160000":  true,
		"2023.16.7.0.21_160000":  true,
		"2024.17.3.0.08_160000":  true,
		"2024.18.12.0.05_160000": false,
		"2025.19.4.0.18_160000":  false,
		"2024.20.1":              false,
		"":                       false,
		"2024.18":                false,
		"3.1":                    false,
	} {
		intel.DriverVersion = version
		require.Equal(t, want, forgetsBlocks(&intel), version)
	}
	intel.DriverVersion = "2024.18.7.0.11_160000"
	for _, change := range []func(*DeviceInfo){
		func(d *DeviceInfo) { d.Vendor = "The pocl project" },
		func(d *DeviceInfo) { d.Backend = BackendLevelZero },
		func(d *DeviceInfo) { d.Type = TypeGPU },
	} {
		other := intel
		change(&other)
		require.False(t, forgetsBlocks(&other))
	}
}
