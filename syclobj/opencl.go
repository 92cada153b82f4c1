//go:build linux && cgo

package syclobj

import (
	"os"
	"path/filepath"
	"strings"
)

// Where OpenCL's loader takes its drivers from.
const (
	envICDFiles   = "OCL_ICD_FILENAMES"
	envICDVendors = "OCL_ICD_VENDORS"
	icdDirectory  = "/etc/OpenCL/vendors"
	cpuDriver     = "libintelocl.so"
	openCLLoader  = "libOpenCL.so.1"
)

// setUpOpenCL makes a pip-installed OpenCL CPU runtime visible when nothing
// else is configured, and says what OpenCL's loader will see. It runs after the
// library is loaded, when the place of libsycl is known, and before the first
// call into it, which is when OpenCL's loader reads its environment.
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
	if !haveSYCL || !filepath.IsAbs(syclDir) { // where the working directory would choose
		return "none configured"
	}
	driver := filepath.Join(syclDir, cpuDriver)
	if !fileExists(driver) {
		return "none configured, and no " + cpuDriver + " in " + syclDir + "; run `pip install intel-opencl-rt` for a CPU device"
	}
	// Both C's environment and Go's, so that child processes agree.
	if err := os.Setenv(envICDFiles, driver); err != nil {
		return "setting " + envICDFiles + " failed: " + err.Error()
	}
	return envICDFiles + "=" + driver + " (set here)"
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// preloadOpenCL helps the wheels of 2024, with libsycl.so.7, which find neither
// OpenCL's loader nor what the driver needs, although all of it lies in their
// own directory. A file that cannot be loaded is for SYCL to pass over.
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

// ConfigureOpenCL makes a pip-installed OpenCL CPU runtime visible, as Open does,
// for a process in which something else may load SYCL before any Runtime is
// opened: a hosted Python whose program imports dpctl first. dir is where
// libintelocl.so lies (lib of the environment). It changes nothing when a driver
// is configured already, when the file is not there or dir not absolute, or when USMBRIDGE_SYCL is
// "off". The result says in words what decides which drivers are seen.
//
// ErrNoDevice: SYCL has listed this process's devices before, without the driver, and
// lists them once. Child processes see it.
func ConfigureOpenCL(dir string) (string, error) {
	before := os.Getenv(envICDFiles)
	says := setUpOpenCL(dir, os.Getenv(EnvLibrary) != "off")
	now := os.Getenv(envICDFiles)
	if now == before {
		return says, nil
	}
	if devicesListed() {
		return says, opErr("ConfigureOpenCL", ErrNoDevice, "SYCL listed its devices before %s was made known, and lists them once in a process; do this first (some packages, such as ray, list devices when they are imported), or start the process with %s=%s", cpuDriver, envICDFiles, now)
	}
	return says, nil
}

// devicesListed reports whether SYCL has asked OpenCL for its devices: it loads OpenCL's
// loader, and what it speaks to other systems by, when it does.
func devicesListed() bool {
	_, loader := findLoaded(openCLLoader)
	_, adapters := findLoaded("libur_adapter")
	_, plugins := findLoaded("libpi_opencl") // the libsycl.so.7 of 2024
	return loader && (adapters || plugins)
}
