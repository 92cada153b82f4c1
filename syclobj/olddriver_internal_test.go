package syclobj

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// That it helps is shown by memmgr's tests with dpctl 0.17 (make test-versions), where several
// goroutines free and allocate: without it the first of them ends the process.
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
