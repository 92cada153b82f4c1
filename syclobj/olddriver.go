package syclobj

import (
	"fmt"
	"strings"
)

// forgetsBlocks reports whether the device's driver loses track of USM that one thread frees while another
// allocates: Intel's OpenCL driver for CPUs before 2024.18.12, which is in the runtime for dpctl 0.17. Its
// version has the form "2024.18.7.0.11_160000".
func forgetsBlocks(d *DeviceInfo) bool {
	if d.Backend != BackendOpenCL || d.Type != TypeCPU || !strings.HasPrefix(d.Vendor, "Intel") {
		return false
	}
	var year, week, patch int
	if n, _ := fmt.Sscanf(d.DriverVersion, "%d.%d.%d", &year, &week, &patch); n < 3 {
		return false
	}
	return year < 2024 || year == 2024 && (week < 18 || week == 18 && patch < 12)
}
