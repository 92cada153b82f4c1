package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

func TestOnTheDevice(t *testing.T) {
	rt := testenv.Must(syclobj.Open())(t)
	none, reason := rt.DefaultQueue().IsHost(), rt.SYCLError()
	require.NoError(t, rt.Close())
	if none {
		testenv.Missing(t, reason, testenv.SYCL)
	}

	before, _ := memmgr.LiveCount()
	var out strings.Builder
	require.NoError(t, run(&out))
	require.Contains(t, out.String(), "as in Go")
	memmgr.Flush()
	after, _ := memmgr.LiveCount()
	require.Equal(t, before, after, "every buffer was released")
	require.NoError(t, memmgr.CloseDefaults())
	require.Zero(t, syclobj.LiveObjects())
}

// TestWithoutSYCL: without Python and SYCL the program prints the reason and a remedy.
func TestWithoutSYCL(t *testing.T) {
	cmd := exec.Command(testenv.Build(t, "."))
	cmd.Env = []string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir(), syclobj.EnvLibrary + "=off"}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, exitNoDevice, exit.ExitCode(), "%s", out)
	require.Contains(t, string(out), "host backend runs no kernels")
	require.Contains(t, string(out), "pip install dpctl intel-opencl-rt")
}

func TestCompare(t *testing.T) {
	var out strings.Builder
	require.Error(t, compare(&out, []float32{1}, []float32{2}))
	require.NoError(t, compare(&out, []float32{1}, []float32{1}))
	require.NotErrorIs(t, compare(&out, []float32{1}, []float32{2}), errors.ErrUnsupported)
}
