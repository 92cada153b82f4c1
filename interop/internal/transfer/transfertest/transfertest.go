// Package transfertest has helpers for the tests of the file formats: pools of each kind of memory, readers
// that fail, and a Python interpreter with other libraries.
package transfertest

import (
	"io"
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

var shared *syclobj.Runtime

// Main is the TestMain of a package. It fails if the tests leave memory or SYCL objects.
func Main(m *testing.M) {
	memtest.MainSYCL(m, func() error {
		if shared == nil {
			return nil
		}
		return shared.Close()
	})
}

// Queue returns the default queue of a real device. Without a device it skips the test, or fails it if
// USMBRIDGE_REQUIRE_SYCL is 1.
func Queue(t testing.TB) *syclobj.Queue {
	t.Helper()
	if shared == nil {
		rt, err := syclobj.Open()
		require.NoError(t, err)
		shared = rt
	}
	q := shared.DefaultQueue()
	if q.IsHost() {
		if os.Getenv("USMBRIDGE_REQUIRE_SYCL") == "1" {
			t.Fatalf("USMBRIDGE_REQUIRE_SYCL=1 and there is no SYCL device: %v", shared.SYCLError())
		}
		t.Skipf("no SYCL device: %v", shared.SYCLError())
	}
	return q
}

// Pool returns a new pool. After the test it must be empty.
func Pool(t testing.TB, from memmgr.Resource, options ...memmgr.PoolOption) *memmgr.Pool {
	t.Helper()
	p := memmgr.NewPool(from, options...)
	t.Cleanup(func() {
		memmgr.Flush()
		require.Zero(t, p.Stats().Allocation.Current, "memory was not released")
		require.NoError(t, p.Close())
	})
	return p
}

// USM returns a new pool of the given kind of unified shared memory.
func USM(t testing.TB, kind syclobj.USMKind) *memmgr.Pool {
	t.Helper()
	upstream := memmgr.USM(Queue(t), kind)
	t.Cleanup(func() { require.NoError(t, memmgr.Close(upstream)) })
	return Pool(t, upstream)
}

// EveryMemory runs a test with host memory and with each kind of USM.
func EveryMemory(t *testing.T, f func(t *testing.T, r memmgr.Resource)) {
	t.Run("host", func(t *testing.T) { f(t, Pool(t, memmgr.Host())) })
	for _, k := range []syclobj.USMKind{syclobj.USMHost, syclobj.USMShared, syclobj.USMDevice} {
		t.Run("usm-"+k.String(), func(t *testing.T) { f(t, USM(t, k)) })
	}
}

// Own returns a function that releases its array after the test.
func Own(t testing.TB) func(*usmarray.Array, error) *usmarray.Array {
	return func(a *usmarray.Array, err error) *usmarray.Array {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(a.Release)
		return a
	}
}

// Content returns the bytes of the elements in C order.
func Content(t testing.TB, a *usmarray.Array) []byte {
	t.Helper()
	flat, err := usmarray.New(memmgr.Host(), a.DataType(), a.Shape())
	require.NoError(t, err)
	defer flat.Release()
	require.NoError(t, flat.CopyFrom(a))
	b, err := flat.Buffer().Bytes()
	require.NoError(t, err)
	return append([]byte{}, b[:flat.NBytes()]...)
}

// List returns the names of the files in a directory.
func List(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Python returns the path of a Python interpreter that can run the statements. Without one it skips the test,
// or fails it if USMBRIDGE_REQUIRE_PEERS is 1.
func Python(t testing.TB, statements string) string {
	t.Helper()
	var tried []string
	if v := os.Getenv("VIRTUAL_ENV"); v != "" {
		tried = append(tried, filepath.Join(v, "bin", "python3"))
	}
	tried = append(tried, filepath.Join("..", "..", ".venv", "bin", "python3"), "python3")
	for _, p := range tried {
		if exec.Command(p, "-c", statements).Run() == nil {
			return p
		}
	}
	if os.Getenv("USMBRIDGE_REQUIRE_PEERS") == "1" {
		t.Fatalf("USMBRIDGE_REQUIRE_PEERS=1, but none of %q can run: %s", tried, statements)
	}
	t.Skipf("no Python of %q can run: %s", tried, statements)
	return ""
}

// RunPython runs a script in a directory, with an interpreter that Python returned.
func RunPython(t testing.TB, python, dir, script string, args ...string) {
	t.Helper()
	cmd := exec.Command(python, append([]string{"-c", script}, args...)...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", text)
}

// Failing is a reader that calls Fail for reads that end after position From.
type Failing struct {
	io.ReaderAt
	From int64
	Fail func(p []byte, at int64) (int, error)
}

// ReadAt implements io.ReaderAt.
func (f *Failing) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.From {
		return f.Fail(p, at)
	}
	return f.ReaderAt.ReadAt(p, at)
}
