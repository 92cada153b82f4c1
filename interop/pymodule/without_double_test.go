//go:build cgo && linux

package pymodule_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

const fakeEnv = "USMBRIDGE_TEST_FAKE"

// onFake reports whether this process has a simulated machine. If not, it runs the calling test in one that has.
func onFake(t *testing.T, machine sycltest.Machine) bool {
	t.Helper()
	if os.Getenv(fakeEnv) != "" {
		return true
	}
	env := testpython.Need(t, "numpy")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
	cmd.Env = append(append(os.Environ(), fakeEnv+"=1", python.EnvVar+"="+env.Executable), sycltest.Environment(t, machine)...)
	out, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
	return false
}

// TestWithoutDoublePrecision checks the default element types of a device that has no double precision.
func TestWithoutDoublePrecision(t *testing.T) {
	if !onFake(t, sycltest.Machine{{Backend: syclobj.BackendLevelZero, Name: "Fake Level Zero", Devices: []sycltest.Device{
		{Type: syclobj.TypeGPU, Name: "Fake GPU", NoDouble: true},
	}}, sycltest.OneCPU[0]}) {
		return
	}
	require.NoError(t, pymodule.Register())
	py, err := python.Start()
	require.NoError(t, err)
	_, err = py.Run(withoutDouble, nil)
	require.NoError(t, err)
}

const withoutDouble = `
import usmbridge as ub

gpu, cpu, host = ub.devices()
assert ub.zeros(2).device == gpu and cpu.filter_string == "opencl:cpu:0"
for a in (ub.empty(2), ub.zeros(2), ub.ones(2), ub.full(2, 1.5), ub.asarray([1.5, 2]), ub.asarray(2.5)):
    assert a.dtype == "float32" and a.usm_type == "shared", a
assert ub.asarray([1j]).dtype == "complex64" and ub.asarray([1, 2]).dtype == "int64"
for place in (cpu, host):
    assert ub.zeros(2, device=place).dtype == "float64" and ub.asarray([1.5], device=place).dtype == "float64"
with ub.set_default(device=cpu):
    assert ub.zeros(2).dtype == "float64"
with ub.set_default(device=cpu, dtype="float32"):
    info = ub.array_api.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == "float32" and "float64" in info.dtypes()
info = ub.array_api.__array_namespace_info__()
assert info.default_dtypes()["complex floating"] == "complex64"
assert "float64" not in info.dtypes() and "complex128" not in info.dtypes() and "float64" in info.dtypes(device=cpu)
`
