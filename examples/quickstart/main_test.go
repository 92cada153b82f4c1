package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/report"
	"github.com/usmbridge/usmbridge/syclobj"
)

func TestMain(m *testing.M) {
	code := m.Run()
	memmgr.Flush() // frees memory that C code dropped, and memory whose work has ended
	if n, err := report.WriteLeaks(os.Stderr); n > 0 || err != nil {
		code = 1
	}
	os.Exit(code)
}

func TestDefaultBackend(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(&out))
	require.Contains(t, out.String(), "[[   0.  640. 1280. 1920.]", "the view is printed")
	requireExchanged(t, out.String())

	rt := testenv.Must(syclobj.Open())(t)
	defer rt.Close()
	if rt.DefaultDevice().IsHost() {
		require.False(t, testenv.Declared(testenv.SYCL), "no SYCL device: %v", rt.SYCLError())
		require.NotContains(t, out.String(), "kDLOneAPI:")
	} else {
		require.Contains(t, out.String(), `"syclobj"`)
		require.Contains(t, out.String(), "kDLOneAPI:")
	}
}

// TestWithoutPythonAndSYCL runs the program without Python on PATH and with SYCL off.
func TestWithoutPythonAndSYCL(t *testing.T) {
	cmd := exec.Command(testenv.Build(t, "."))
	cmd.Env = []string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir(), syclobj.EnvLibrary + "=off"}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "device: host")
	require.Contains(t, string(out), "SYCL is switched off")
	requireExchanged(t, string(out))
}

// requireExchanged requires that the array was exported and imported. A build without cgo has no DLPack
// and must print the reason.
func requireExchanged(t *testing.T, out string) {
	t.Helper()
	if strings.Contains(out, errors.ErrUnsupported.Error()) {
		require.Contains(t, out, "CGO_ENABLED")
		return
	}
	require.Contains(t, out, "the same memory, no byte copied")
}
