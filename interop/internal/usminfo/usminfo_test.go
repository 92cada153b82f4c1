package usminfo

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

func show(t *testing.T, r *report) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, r.print(&b))
	return b.String()
}

// gatherHere returns a report on a Runtime that is closed at the end of the test.
func gatherHere(t *testing.T) (*report, error) {
	return gather(func() (*syclobj.Runtime, error) {
		rt, err := syclobj.Open()
		if err == nil {
			t.Cleanup(func() { _ = rt.Close() })
		}
		return rt, err
	}, nil)
}

func TestInsideAPython(t *testing.T) {
	r := testenv.Must(gather(func() (*syclobj.Runtime, error) { return syclobj.Open(syclobj.HostOnly()) },
		&Interpreter{Version: "3.12.1", Executable: "/env/bin/python", Prefix: "/env"}))(t)
	require.Contains(t, show(t, r), "Python    3.12.1\n  program   /env/bin/python (from this process)\n\n")
}

func TestWithWhatIsHere(t *testing.T) {
	r := testenv.Must(gatherHere(t))(t)
	text := show(t, r)
	host := r.Platforms[len(r.Platforms)-1].Devices[0]
	require.Equal(t, "host", host.FilterString)
	require.Equal(t, &[2]int{1, 0}, host.DLPack)
	require.Empty(t, host.USMKinds)
	require.Contains(t, text, "none: plain host memory")
	require.Contains(t, text, "(default)")
	if testenv.Declared(testenv.SYCL) {
		require.True(t, r.SYCL.Found, text)
		require.FileExists(t, r.SYCL.Path)
		require.NotEqual(t, "host", r.Default)
		first := r.Platforms[0].Devices[0]
		require.Regexp(t, `^[a-z_]+:[a-z]+:[0-9]+$`, first.FilterString)
		require.Equal(t, kDLOneAPI, first.DLPack[0])
		require.NotEmpty(t, first.USMKinds)
	}
	if testenv.Declared(testenv.Python) {
		require.True(t, r.Python.Found, text)
		require.FileExists(t, r.Python.Library)
		require.Contains(t, text, r.Python.Library)
	}
}

func TestJSONHasAllFieldsWhateverIsFound(t *testing.T) {
	t.Setenv(syclobj.EnvLibrary, "off")
	t.Setenv("USMBRIDGE_PYTHON", "off")
	r := testenv.Must(gatherHere(t))(t)
	text := testenv.Must(json.Marshal(r))(t)
	var back map[string]any
	require.NoError(t, json.Unmarshal(text, &back))
	for _, key := range []string{"version", "go", "system", "sycl", "python", "platforms", "default_device", "missing"} {
		require.Contains(t, back, key)
	}
	require.Equal(t, "host", back["default_device"])
	require.Len(t, back["missing"], 2)
	require.NotContains(t, string(text), "null", "lists are empty, not absent")
}

func TestMissingThingsAreNamedWithTheRemedy(t *testing.T) {
	t.Setenv(syclobj.EnvLibrary, "")
	t.Setenv("USMBRIDGE_PYTHON", "")
	t.Setenv("VIRTUAL_ENV", "")
	t.Setenv("PATH", t.TempDir())
	r := testenv.Must(gatherHere(t))(t)
	text := show(t, r)
	if !r.SYCL.Found { // The loader can find a library without these variables.
		require.Contains(t, text, "not found; the host backend serves")
		require.Contains(t, text, remedy())
	}
	require.Contains(t, text, "none that could be embedded")
	require.Contains(t, text, "install Python 3.11")
}

func TestNamedLibraryThatIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libDPCTLSyclInterface.so")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o644))
	t.Setenv(syclobj.EnvLibrary, path)
	r := testenv.Must(gatherHere(t))(t)
	if r.SYCL.Found {
		t.Skip("this process has a SYCL library already, and keeps it")
	}
	require.Contains(t, show(t, r), remedy())
	require.Contains(t, r.SYCL.Attempts[0].Source, syclobj.EnvLibrary)
	require.Equal(t, "host", r.Default)
	if canHaveSYCL() {
		require.Contains(t, show(t, r), path)
	}
}

// canHaveSYCL reports whether this build supports SYCL. It does not without cgo.
func canHaveSYCL() bool {
	rt, err := syclobj.Open()
	if err != nil {
		return !errors.Is(err, errors.ErrUnsupported)
	}
	defer rt.Close()
	return !errors.Is(rt.SYCLError(), errors.ErrUnsupported)
}

// remedy returns the instruction in a report without SYCL.
func remedy() string {
	if canHaveSYCL() {
		return "pip install dpctl intel-opencl-rt"
	}
	return "built with cgo"
}

func TestSize(t *testing.T) {
	tests := []struct {
		bytes uint64
		want  string
	}{{0, "0 bytes"}, {1023, "1023 bytes"}, {1024, "1.0 KiB"}, {25276514304, "23.5 GiB"}, {1<<64 - 1, "16.0 EiB"}}
	for _, test := range tests {
		require.Equal(t, test.want, size(test.bytes))
	}
}

func TestPrintOfADeviceWithoutId(t *testing.T) {
	r := &report{Platforms: []platform{{Name: "P", Backend: "cuda", Devices: []device{{FilterString: "cuda:gpu:0"}}}, {Name: "Q"}}}
	text := show(t, r)
	require.Contains(t, text, "has no id for it")
	require.Contains(t, text, "no devices")
}

// TestDeviceWithoutUSM: the memory of a device without USM is not described as that of the host backend.
func TestDeviceWithoutUSM(t *testing.T) {
	sycltest.Child(t, sycltest.Machine{{Backend: syclobj.BackendOpenCL, Name: "Old OpenCL", Devices: []sycltest.Device{
		{Type: syclobj.TypeGPU, Name: "Old GPU", Lacks: []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost}},
	}}}, func(*sycltest.Fake) {
		r := testenv.Must(gatherHere(t))(t)
		text := show(t, r)
		require.Equal(t, 1, strings.Count(text, "none: the device cannot have Arrays"), text)
		require.Equal(t, 1, strings.Count(text, "none: plain host memory"), text)
	})
}

// TestDeviceWithoutQueue: the report names a device on which no queue could be created, and the reason if
// there is no queue on any device.
func TestDeviceWithoutQueue(t *testing.T) {
	for _, c := range []struct {
		machine sycltest.Machine
		want    string
	}{
		{sycltest.TwoGPUs, "a queue on level_zero:gpu:0"},
		{sycltest.OneCPU, "creating a queue on opencl:cpu:0"},
	} {
		t.Run(c.want, func(t *testing.T) {
			sycltest.Child(t, c.machine, func(fake *sycltest.Fake) {
				fake.Fail("DPCTLQueue_Create", 1)
				r := testenv.Must(gatherHere(t))(t)
				require.Contains(t, show(t, r), c.want)
			})
		})
	}
}
