package npy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(fullEnv); path != "" {
		os.Exit(writeToFullDisk(path))
	}
	memtest.MainSYCL(m, func() error {
		if sharedRT == nil {
			return nil
		}
		return sharedRT.Close()
	})
}

var sharedRT *syclobj.Runtime

// needSYCL is the default queue of a real device; it skips where there is none, and fails
// where one was promised.
func needSYCL(t testing.TB) *syclobj.Queue {
	t.Helper()
	if sharedRT == nil {
		rt, err := syclobj.Open()
		require.NoError(t, err)
		sharedRT = rt
	}
	q := sharedRT.DefaultQueue()
	if q.IsHost() {
		if os.Getenv("USMBRIDGE_REQUIRE_SYCL") == "1" {
			t.Fatalf("USMBRIDGE_REQUIRE_SYCL=1 and there is no SYCL device: %v", sharedRT.SYCLError())
		}
		t.Skipf("no SYCL device: %v", sharedRT.SYCLError())
	}
	return q
}

// newPool makes a pool that must be empty after the test.
func newPool(t testing.TB, from memmgr.Resource, options ...memmgr.PoolOption) *memmgr.Pool {
	t.Helper()
	p := memmgr.NewPool(from, options...)
	t.Cleanup(func() {
		memmgr.Flush()
		require.Zero(t, p.Stats().Allocation.Current, "memory did not come back")
		require.NoError(t, p.Close())
	})
	return p
}

// everyMemory runs a test on the host backend and on each kind of USM.
func everyMemory(t *testing.T, f func(t *testing.T, r memmgr.Resource)) {
	t.Run("host", func(t *testing.T) { f(t, newPool(t, memmgr.Host())) })
	for _, k := range []syclobj.USMKind{syclobj.USMHost, syclobj.USMShared, syclobj.USMDevice} {
		t.Run("usm-"+k.String(), func(t *testing.T) {
			upstream := memmgr.USM(needSYCL(t), k)
			t.Cleanup(func() { require.NoError(t, memmgr.Close(upstream)) })
			f(t, newPool(t, upstream))
		})
	}
}

// own releases an array after the test.
func own(t testing.TB) func(*usmarray.Array, error) *usmarray.Array {
	return func(a *usmarray.Array, err error) *usmarray.Array {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(a.Release)
		return a
	}
}

// content is the bytes of the elements in C order.
func content(t testing.TB, a *usmarray.Array) []byte {
	t.Helper()
	flat, err := usmarray.New(memmgr.Host(), a.DataType(), a.Shape())
	require.NoError(t, err)
	defer flat.Release()
	require.NoError(t, flat.CopyFrom(a))
	b, err := flat.Buffer().Bytes()
	require.NoError(t, err)
	return append([]byte{}, b[:flat.NBytes()]...)
}

// python finds a Python with NumPy, or skips; where peers were promised it fails.
func python(t testing.TB) string {
	t.Helper()
	var tried []string
	if v := os.Getenv("VIRTUAL_ENV"); v != "" {
		tried = append(tried, filepath.Join(v, "bin", "python3"))
	}
	tried = append(tried, filepath.Join("..", "..", ".venv", "bin", "python3"), "python3")
	for _, p := range tried {
		if exec.Command(p, "-c", "import numpy, ml_dtypes; assert int(numpy.__version__.split('.')[0]) >= 2").Run() == nil {
			return p
		}
	}
	if os.Getenv("USMBRIDGE_REQUIRE_PEERS") == "1" {
		t.Fatalf("USMBRIDGE_REQUIRE_PEERS=1, and none of %q has NumPy 2 and ml_dtypes", tried)
	}
	t.Skipf("no Python with NumPy 2 and ml_dtypes among %q", tried)
	return ""
}

// runPython runs a script with NumPy in a directory.
func runPython(t testing.TB, dir, script string) {
	t.Helper()
	cmd := exec.Command(python(t), "-c", script)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", text)
}
