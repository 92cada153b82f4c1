package syclobj_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
)

func TestRealMachine(t *testing.T) {
	rt := openReal(t)
	lib := rt.Library()
	require.True(t, filepath.IsAbs(lib.Path), lib.Path)
	require.NotEmpty(t, lib.CompilerVersion)
	require.NotEmpty(t, lib.OpenCLDrivers)
	attempts := rt.Attempts()
	require.NoError(t, attempts[len(attempts)-1].Err)
	for i, d := range rt.RootDevices() {
		found := testenv.Must(rt.Device(d.FilterString()))(t)
		require.Same(t, d, found)
		require.EqualValues(t, i, testenv.Must(d.DLPackID())(t))
		require.NotEmpty(t, d.Info().Name)
		require.NotEmpty(t, d.Info().Vendor)
		require.NotEmpty(t, d.Info().DriverVersion)
		require.NotZero(t, d.Info().GlobalMemSize)
		require.NotZero(t, d.Info().ComputeUnits)
		require.NotEmpty(t, d.Platform().Info().Name)
		require.NotEmpty(t, d.Platform().Info().Version)
		require.True(t, d.DefaultContext().IsDefault())
		require.True(t, d.Equal(found))
	}
}

// TestRealCPUQueues: a process makes the queues of Intel's OpenCL CPU driver in-order, unless it is told not to.
func TestRealCPUQueues(t *testing.T) {
	path := openReal(t).Library().Path
	if o := openIn(t, envOption+"="+path); o.Queues == "" {
		t.Skip("there is no OpenCL CPU driver of Intel")
	} else {
		require.Equal(t, "in-order", o.Queues)
	}
	require.Equal(t, "the driver's (USMBRIDGE_CPU_QUEUES=driver)", openIn(t, envOption+"="+path, "USMBRIDGE_CPU_QUEUES=driver").Queues)
}

// TestRealPointers: the end of an allocation is detected exactly, and memory that is not USM is detected;
// nothing crashes.
func TestRealPointers(t *testing.T) {
	rt := openReal(t)
	q := rt.DefaultQueue()
	for kind := syclobj.USMDevice; kind <= syclobj.USMHost; kind++ {
		const n = 1000
		p, err := q.Alloc(kind, n, 64) // which each driver grants, without padding
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, syclobj.Free(p)) })
		place := testenv.Must(placeOf(rt, q.Context(), nil, p, unsafe.Add(p, n)))(t)
		require.Equal(t, kind, place.Kind())
		place.Release()
		require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, q.Context(), nil, p, unsafe.Add(p, n+1))), syclobj.ErrOverrun)
	}
	goMemory := make([]byte, 64)
	require.ErrorIs(t, testenv.ErrorOf(dlpackPlace(rt, 0, unsafe.Pointer(&goMemory[0]), unsafe.Pointer(&goMemory[32]))), syclobj.ErrNotUSM)
	host := testenv.Must(rt.HostQueue().Alloc(syclobj.USMUnknown, 64, 0))(t)
	require.ErrorIs(t, testenv.ErrorOf(placeOf(rt, nil, q, host, unsafe.Add(host, 64))), syclobj.ErrNotUSM)
	require.NoError(t, syclobj.Free(host))
}

// TestRealLargeAlignment: memory has the requested alignment, or the allocation fails because a block of that
// size does. OpenCL takes an alignment in 32 bits and silently uses the low bits of a larger number.
func TestRealLargeAlignment(t *testing.T) {
	q := openReal(t).DefaultQueue()
	for kind := syclobj.USMDevice; kind <= syclobj.USMHost; kind++ {
		for bit := 20; bit < 64; bit++ {
			p, err := q.Alloc(kind, 100, 1<<bit)
			if err != nil {
				require.ErrorIs(t, err, syclobj.ErrAllocation)
				require.GreaterOrEqual(t, bit, 22, "modest ones are served")
				continue
			}
			require.Zero(t, uintptr(p)%(1<<bit), "%v memory aligned to 1<<%d", kind, bit)
			require.NoError(t, syclobj.Free(p))
		}
	}
}

// Runtimes are opened and closed repeatedly in one process.
func TestRealReopen(t *testing.T) {
	openReal(t)
	for range 3 {
		rt := testenv.Must(syclobj.Open(syclobj.RequireSYCL()))(t)
		require.Equal(t, "already loaded", rt.Attempts()[0].Source)
		require.NoError(t, rt.DefaultQueue().Wait(context.Background()))
		require.NoError(t, rt.Close())
	}
	_, err := syclobj.Open(syclobj.WithLibrary(os.Args[0]))
	require.ErrorIs(t, err, syclobj.ErrNoSYCL, "another file, while one is loaded")
	require.ErrorContains(t, err, "the process has loaded")
}

// TestRealKeepsGoPanics: SYCL drivers install signal handlers, and Go's must be restored.
func TestRealKeepsGoPanics(t *testing.T) {
	q := openReal(t).DefaultQueue()
	p := alloc(t, q, syclobj.USMShared, 64)
	require.NoError(t, testenv.Must(q.Fill(p, make([]byte, 16), 4))(t).Wait(context.Background()))
	require.Panics(t, func() {
		var nothing *[1 << 20]byte
		runtime.KeepAlive(nothing[len(goArgument)])
	})
}

var goArgument = "a nil dereference is a panic"

// TestEnumsMatchHeaders compares the constants of the C layer with the library's own headers.
func TestEnumsMatchHeaders(t *testing.T) {
	rt := openReal(t)
	include := filepath.Join(filepath.Dir(rt.Library().Path), "include", "syclinterface")
	if _, err := os.Stat(include); err != nil {
		t.Skipf("the library carries no headers: %v", err)
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	source := `
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include "dpctl_sycl_enum_types.h"
#include "symbols.h"
#include "usmb_sycl.h"
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a " is not " #b)
SAME(USMB_USM_UNKNOWN, DPCTL_USM_UNKNOWN);
SAME(USMB_USM_DEVICE, DPCTL_USM_DEVICE);
SAME(USMB_USM_SHARED, DPCTL_USM_SHARED);
SAME(USMB_USM_HOST, DPCTL_USM_HOST);
SAME(DP_ALL_DEVICES, DPCTL_ALL);
SAME(DP_ALL_BACKENDS, DPCTL_ALL_BACKENDS);
SAME(DP_ENABLE_PROFILING, DPCTL_ENABLE_PROFILING);
SAME(DP_IN_ORDER, DPCTL_IN_ORDER);
SAME(DP_EVENT_COMPLETE, DPCTL_COMPLETE);
SAME(DP_ASPECT_USM_DEVICE, usm_device_allocations);
SAME(DP_ASPECT_USM_HOST, usm_host_allocations);
SAME(DP_ASPECT_USM_SHARED, usm_shared_allocations);
SAME(1 << 16, DPCTL_CUDA);
SAME(1 << 17, DPCTL_LEVEL_ZERO);
SAME(1 << 18, DPCTL_OPENCL);
SAME(1 << 0, DPCTL_ACCELERATOR);
SAME(1 << 2, DPCTL_CPU);
SAME(1 << 3, DPCTL_CUSTOM);
SAME(1 << 4, DPCTL_GPU);
SAME(1, numa);
SAME(6, next_partitionable);
`
	require.EqualValues(t, 1, syclobj.AffinityNUMA)
	require.EqualValues(t, 6, syclobj.AffinityNextPartitionable)
	require.EqualValues(t, 1<<18, syclobj.BackendOpenCL)
	require.EqualValues(t, 1<<4, syclobj.TypeGPU)
	header := testenv.Must(os.ReadFile(filepath.Join(include, "dpctl_sycl_enum_types.h")))(t)
	if strings.Contains(string(header), "DPCTL_HIP") { // not yet in 0.17
		source += "SAME(1 << 19, DPCTL_HIP);\n"
	}
	if strings.Contains(string(header), "ext_oneapi_ipc_memory") { // not yet in 0.22
		source += "SAME(DP_ASPECT_IPC_MEMORY, ext_oneapi_ipc_memory);\n"
	}
	file := filepath.Join(t.TempDir(), "enums.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	out, err := exec.Command(compiler, "-fsyntax-only", "-I", include, "-I", ".", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
