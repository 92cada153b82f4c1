package syclobj_test

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestMain uses the environment of `make python` unless another is active, and fails if objects were left
// open.
func TestMain(m *testing.M) {
	if file := os.Getenv(envOpening); file != "" {
		if err := report(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := testenv.Environments()[0]; os.Getenv("VIRTUAL_ENV") == "" {
		if _, err := os.Stat(dir); err == nil {
			os.Setenv("VIRTUAL_ENV", dir)
		}
	}
	code := m.Run()
	if live := syclobj.LiveObjects(); code == 0 && live != (syclobj.Live{}) {
		fmt.Fprintln(os.Stderr, "left open:", live)
		code = 1
	}
	os.Exit(code)
}

// openReal opens the real SYCL with a device, or skips.
func openReal(t testing.TB) *syclobj.Runtime {
	t.Helper()
	rt, err := syclobj.Open(syclobj.RequireSYCL())
	if err != nil {
		testenv.Missing(t, err, testenv.SYCL)
	}
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	return rt
}

// onMachine runs f with a runtime on a fake machine.
func onMachine(t *testing.T, m sycltest.Machine, f func(*sycltest.Fake, *syclobj.Runtime)) {
	t.Helper()
	sycltest.Child(t, m, func(fake *sycltest.Fake) { f(fake, openReal(t)) })
}

// placeOf is PlaceOf for memory that is known to be there.
func placeOf(rt *syclobj.Runtime, ctx *syclobj.Context, q *syclobj.Queue, lo, hi unsafe.Pointer) (*syclobj.Place, error) {
	return rt.PlaceOf(ctx, q, uintptr(lo), uintptr(hi))
}

func dlpackPlace(rt *syclobj.Runtime, id int32, lo, hi unsafe.Pointer) (*syclobj.Place, error) {
	return rt.DLPackPlace(id, uintptr(lo), uintptr(hi))
}

// openHost opens the host backend only.
func openHost(t testing.TB) *syclobj.Runtime {
	t.Helper()
	return testenv.Opened(syclobj.Open(syclobj.HostOnly()))(t)
}
