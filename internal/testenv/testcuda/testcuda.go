//go:build linux && cgo

// Package testcuda has functions for tests on CUDA devices: those of the machine, or devices that testdata/cuda.c
// simulates for the real CUDA adapter of SYCL in `make test-devices`. Only tests import it.
package testcuda

/*
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Returns a function of the simulated driver, or NULL.
static void *simulated(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	return driver ? dlsym(driver, name) : NULL;
}

// The arguments are those of the functions in testdata/cuda.c.
static int later(int device, uintptr_t stream, uintptr_t to, int value, size_t n)
{
	int (*f)(int, void *, unsigned long long, int, size_t);
	*(void **)&f = simulated("simulated_later");
	return f ? f(device, (void *)stream, to, value, n) : -1;
}

static int hold(int device, uintptr_t stream, int on)
{
	int (*f)(int, void *, int);
	*(void **)&f = simulated("simulated_hold");
	return f ? f(device, (void *)stream, on) : -1;
}

static int fail(const char *name, int error, int count)
{
	int (*f)(const char *, int, int, int);
	*(void **)&f = simulated("sim_fail");
	return f ? f(name, 0, error, count) : -1;
}

static int capture(int on)
{
	int (*f)(int);
	*(void **)&f = simulated("sim_capture");
	return f ? f(on) : -1;
}

static int invalidated(void)
{
	int (*f)(void);
	*(void **)&f = simulated("sim_invalidated");
	return f ? f() : -1;
}

// The ordinal of a device that is no device means no context.
static int setCurrent(int device)
{
	int (*retain)(void **, int), (*set)(void *);
	void *context = NULL;
	*(void **)&retain = simulated("cuDevicePrimaryCtxRetain");
	*(void **)&set = simulated("cuCtxSetCurrent");
	if (device >= 0 && retain(&context, device)) return -1; // the tests never release it
	return set(context);
}

static void *current(void)
{
	int (*get)(void **);
	void *context = NULL;
	*(void **)&get = simulated("cuCtxGetCurrent");
	get(&context);
	return context;
}

static void finish(void)
{
	int (*f)(void);
	*(void **)&f = simulated("simulated_finish");
	if (f) f();
}
*/
import "C"

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Queues returns the default queues of the CUDA devices, in CUDA's order. It skips the test if there is none.
func Queues(t *testing.T) (all []*syclobj.Queue) {
	t.Helper()
	for _, d := range testsycl.Runtime(t).RootDevices() {
		if d.Info().Backend != syclobj.BackendCUDA {
			continue
		}
		q, err := d.DefaultQueue()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, q)
	}
	if len(all) == 0 {
		t.Skip("no CUDA device; make test-devices simulates some")
	}
	return all
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

// Fail makes the calls of a function of the driver, "*" of each, fail with an error of CUDA until the result is called. It
// skips the test on a real device.
func Fail(t *testing.T, name string, code int) (end func()) {
	t.Helper()
	c := C.CString(name)
	if C.fail(c, C.int(code), 1<<30) != 0 {
		t.Skip("the driver of CUDA is not the simulated one")
	}
	return sync.OnceFunc(func() {
		C.fail(c, 0, 0)
		C.free(unsafe.Pointer(c))
	})
}

// Capture begins a capture by another thread of a stream of each device, in the global mode. The result ends it. It skips
// the test on a real device.
func Capture(t *testing.T) (end func()) {
	t.Helper()
	if C.capture(1) != 0 {
		t.Skip("the driver of CUDA is not the simulated one")
	}
	return func() { C.capture(0) }
}

// Invalidated returns how many calls have invalidated the capture that Capture began last.
func Invalidated() int { return int(C.invalidated()) }

// SetCurrent makes the primary context of a device current in the thread, none for -1, and keeps the goroutine on the
// thread until the test ends.
func SetCurrent(t *testing.T, device int) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	if C.setCurrent(C.int(device)) != 0 {
		t.Fatalf("device %d cannot be made current", device)
	}
}

// Current returns the context that is current in the thread.
func Current() uintptr { return uintptr(C.current()) }
