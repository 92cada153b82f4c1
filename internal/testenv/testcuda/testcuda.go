//go:build linux && cgo

// Package testcuda runs tests on CUDA devices: those of the machine, or two that testdata/cuda.c simulates
// for the real CUDA adapter of SYCL. Only tests import it.
package testcuda

/*
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

// The arguments are those of simulated_later.
static int later(int device, uintptr_t stream, uintptr_t to, int value, size_t n)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	int (*f)(int, void *, unsigned long long, int, size_t) = NULL;
	if (driver) *(void **)&f = dlsym(driver, "simulated_later");
	return f ? f(device, (void *)stream, to, value, n) : -1;
}

static int hold(int device, uintptr_t stream, int on)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	int (*f)(int, void *, int) = NULL;
	if (driver) *(void **)&f = dlsym(driver, "simulated_hold");
	return f ? f(device, (void *)stream, on) : -1;
}

static void finish(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	int (*f)(void) = NULL;
	if (driver) *(void **)&f = dlsym(driver, "simulated_finish");
	if (f) f();
}
*/
import "C"

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
)

// EnvAdapters names the folder with the CUDA adapter of SYCL.
const EnvAdapters = "USMBRIDGE_UR_ADAPTERS"

const envTest = "USMBRIDGE_CUDA_TEST"

// Child reports whether the calling test runs in a process with CUDA devices. If not, it runs the test again in
// one, fails the test if that failed, and returns false; the caller returns. Without devices and without an
// adapter it skips the test.
func Child(t *testing.T) bool {
	t.Helper()
	rt, err := syclobj.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	for _, d := range rt.RootDevices() {
		if d.Info().Backend == syclobj.BackendCUDA {
			return true
		}
	}
	if os.Getenv(envTest) != "" {
		t.Fatalf("SYCL lists no CUDA device with the adapter in %s", os.Getenv(EnvAdapters))
	}
	if os.Getenv(EnvAdapters) == "" {
		t.Skip("no CUDA device, and " + EnvAdapters + " names no folder with libur_adapter_cuda.so.0")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+regexp.QuoteMeta(t.Name())+"$", "-test.count=1", "-test.v")
	cmd.Env = append(append(os.Environ(), envTest+"="+t.Name()), environment(t)...)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name()+" (")) {
		t.Fatalf("on CUDA devices: %v\n%s", err, out)
	}
	t.Log(string(out))
	return false
}

// environment returns the variables of a process with the adapter, and without a GPU with the simulated driver.
func environment(t *testing.T) []string {
	var path []string
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		path = append(path, driver(t))
	}
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		path = append(path, filepath.Join(venv, "lib")) // with UMF, on which the adapter depends
	}
	if set := os.Getenv("LD_LIBRARY_PATH"); set != "" {
		path = append(path, set)
	}
	return []string{"UR_ADAPTERS_SEARCH_PATH=" + os.Getenv(EnvAdapters), "LD_LIBRARY_PATH=" + strings.Join(path, ":")}
}

// driver builds the simulated driver and returns its folder.
func driver(t *testing.T) string {
	dir := t.TempDir()
	compiler := strings.Fields(os.Getenv("CC"))
	if len(compiler) == 0 {
		compiler = []string{"cc"}
	}
	sources := filepath.Join(testenv.Root(), "internal", "testenv", "testcuda", "testdata")
	for name, source := range map[string]string{"libcuda.so.1": "cuda.c", "libnvidia-ml.so.1": "nvml.c"} {
		args := append(compiler[1:], "-std=gnu11", "-O1", "-shared", "-fPIC", "-Wl,-soname,"+name, "-o", filepath.Join(dir, name), filepath.Join(sources, source), "-lpthread")
		if out, err := exec.Command(compiler[0], args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", compiler[0], err, out)
		}
	}
	return dir
}

// Later makes work of another library pending on a stream of a simulated device: it fills n bytes after 20 ms.
// It skips the test on a real device.
func Later(t *testing.T, device int, address uintptr, value byte, n int) {
	t.Helper()
	if C.later(C.int(device), stream, C.uintptr_t(address), C.int(value), C.size_t(n)) != 0 {
		t.Skip("the driver of CUDA is not the simulated one")
	}
}

const stream = 0x50 // of other libraries

// Hold makes work of another library pending on a simulated device that ends when the result is called. It skips
// the test on a real device.
func Hold(t *testing.T, device int) (end func()) {
	t.Helper()
	if C.hold(C.int(device), stream, 1) != 0 {
		t.Skip("the driver of CUDA is not the simulated one")
	}
	return func() { C.hold(C.int(device), stream, 0) }
}

// Finish waits for all work of Later.
func Finish() { C.finish() }
