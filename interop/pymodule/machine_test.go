//go:build cgo && linux

package pymodule_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// onFake reports whether this process has a simulated machine. If not, it runs the calling test in one that has.
func onFake(t *testing.T, machine sycltest.Machine) bool {
	t.Helper()
	if os.Getenv(childEnv) != "" {
		return true
	}
	testpython.Need(t, "numpy")
	inProcess(t, "fake", sycltest.Environment(t, machine)...)
	return false
}

// runOn runs Python code in a process with a simulated machine.
func runOn(t *testing.T, code string, machine sycltest.Machine) {
	t.Helper()
	if !onFake(t, machine) {
		return
	}
	require.NoError(t, pymodule.Register())
	py := testenv.Must(python.Start())(t)
	require.NoError(t, testenv.ErrorOf(py.Run(code, nil)))
}

// TestWithoutDoublePrecision checks the default element types of a device that has no double precision.
func TestWithoutDoublePrecision(t *testing.T) {
	runOn(t, withoutDouble, sycltest.Machine{{Backend: syclobj.BackendLevelZero, Name: "Fake Level Zero", Devices: []sycltest.Device{
		{Type: syclobj.TypeGPU, Name: "Fake GPU", NoDouble: true},
	}}, sycltest.OneCPU[0]})
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

// TestHostMemoryOfTheSecondDevice checks that host memory is on the device of the queue or filter string in its
// dictionary, also if the memory is known. For the pointer SYCL reports the first device of the context.
func TestHostMemoryOfTheSecondDevice(t *testing.T) {
	runOn(t, hostMemory, sycltest.TwoGPUs)
}

const hostMemory = `
import usmbridge as ub

first, second = ub.devices()[:2]
queues = {d: ub.zeros(1, device=d, usm_type="host").sycl_queue for d in (first, second)}

class Owner:
    pass

owner = Owner()
owner.array = ub.zeros(8, device=second, usm_type="host")
owner.__sycl_usm_array_interface__ = dict(owner.array.__sycl_usm_array_interface__)
held = []
for d in (second, first, second):
    for syclobj in (queues[d], queues[d]._get_capsule(), d.filter_string):
        owner.__sycl_usm_array_interface__["syclobj"] = syclobj
        held.append(ub.from_usm_array_interface(owner))
        assert held[-1].device == d, (held[-1].device, d, syclobj)
for kind in ("device", "shared"):
    owner.__sycl_usm_array_interface__ = dict(ub.zeros(8, device=second, usm_type=kind).__sycl_usm_array_interface__, syclobj=queues[first])
    assert ub.from_usm_array_interface(owner).device == second
`
