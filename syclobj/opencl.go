//go:build linux && cgo

package syclobj

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The configuration of OpenCL's loader.
const (
	envICDFiles   = "OCL_ICD_FILENAMES"
	envICDVendors = "OCL_ICD_VENDORS"
	icdDirectory  = "/etc/OpenCL/vendors"
	cpuDriver     = "libintelocl.so"
	openCLLoader  = "libOpenCL.so.1"
)

// setUpOpenCL makes a pip-installed OpenCL CPU runtime visible if nothing else is configured, and
// describes the configuration. It runs after the library is loaded, when the path of libsycl is known, and
// before the first call of it, when OpenCL's loader reads its environment.
func setUpOpenCL(syclDir string, haveSYCL bool) string {
	if v := os.Getenv(envICDFiles); v != "" {
		return envICDFiles + "=" + v
	}
	if v := os.Getenv(envICDVendors); v != "" {
		return envICDVendors + "=" + v
	}
	if found, err := filepath.Glob(filepath.Join(icdDirectory, "*.icd")); err == nil && len(found) > 0 {
		return icdDirectory
	}
	if !haveSYCL || !filepath.IsAbs(syclDir) { // a relative path depends on the working directory
		return "none configured"
	}
	driver := filepath.Join(syclDir, cpuDriver)
	if !fileExists(driver) {
		return "none configured, and no " + cpuDriver + " in " + syclDir + "; run `pip install intel-opencl-rt` for a CPU device"
	}
	// Sets C's and Go's environment, so that child processes inherit it.
	if err := os.Setenv(envICDFiles, driver); err != nil {
		return "setting " + envICDFiles + " failed: " + err.Error()
	}
	return envICDFiles + "=" + driver + " (set here)"
}

// loadedBefore describes the libraries of OpenCL and of its CPU driver that the process has loaded from
// other directories than dir, or returns "". With them the loader does not load those in dir, and the driver
// may fail without a report. Packages such as openvino bring their own.
func loadedBefore(dir string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if real, e := filepath.EvalSymlinks(dir); e == nil {
		dir = real
	}
	var found []string
	for line := range strings.Lines(string(maps)) {
		_, path, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "/")
		path = "/" + path
		name := filepath.Base(path)
		driver := strings.HasPrefix(name, "libtbb.so") || strings.HasPrefix(name, "libOpenCL.so")
		if driver && filepath.Dir(path) != dir && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	if err != nil || len(found) == 0 {
		return ""
	}
	return "the process has loaded " + strings.Join(found, " and ") + ", which can hide the driver: open SYCL before other " +
		"libraries, in Python by usmbridge.devices() before other imports, such as openvino"
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// preloadOpenCL loads OpenCL's loader and driver for the wheels of 2024 (libsycl.so.7), which do not find
// them in their own directory. SYCL itself reports files that cannot be loaded.
func preloadOpenCL(sycl string) {
	dir := filepath.Dir(sycl)
	if !strings.HasPrefix(filepath.Base(sycl), "libsycl.so.7") || os.Getenv(envICDFiles) != filepath.Join(dir, cpuDriver) {
		return
	}
	for _, file := range []string{openCLLoader, cpuDriver} {
		if path := filepath.Join(dir, file); checkFile(path, dir) == nil {
			loadExtra(path)
		}
	}
}

// ConfigureOpenCL makes a pip-installed OpenCL CPU runtime visible, as Open does, for a process in which
// other code may load SYCL before a Runtime is opened, such as a Python program that imports dpctl first.
// dir is the directory of libintelocl.so (lib of the environment). It changes nothing if a driver is
// configured already, if the file does not exist, if dir is not absolute, or if USMBRIDGE_SYCL is "off".
// The result describes the configuration that selects the drivers.
//
// It returns ErrNoDevice if SYCL has already listed this process's devices, without the driver: it lists
// them only once. Child processes see the driver.
func ConfigureOpenCL(dir string) (string, error) {
	before := os.Getenv(envICDFiles)
	description := setUpOpenCL(dir, os.Getenv(EnvLibrary) != "off")
	now := os.Getenv(envICDFiles)
	if now == before {
		return description, nil
	}
	if devicesListed() {
		return description, opErr("ConfigureOpenCL", ErrNoDevice, "SYCL listed its devices before %s was configured, and lists them once in a process; do this first (some packages, such as ray, list devices when they are imported), or start the process with %s=%s", cpuDriver, envICDFiles, now)
	}
	return description, nil
}

// devicesListed reports whether SYCL has listed OpenCL's devices: it then has loaded OpenCL's loader and
// its adapter for OpenCL.
func devicesListed() bool {
	_, loader := findLoaded(openCLLoader)
	_, adapters := findLoaded("libur_adapter")
	_, plugins := findLoaded("libpi_opencl") // the libsycl.so.7 of 2024
	return loader && (adapters || plugins)
}
