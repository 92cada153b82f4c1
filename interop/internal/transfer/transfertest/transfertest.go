// Package transfertest has what the tests of the file formats share: every kind of memory,
// readers that fail, and a Python with the peers.
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

// Main is the TestMain of a package: it fails one that leaves memory or SYCL objects.
func Main(m *testing.M) {
	memtest.MainSYCL(m, func() error {
		if shared == nil {
			return nil
		}
		return shared.Close()
	})
}

// Queue is the default queue of a real device; a test is skipped where there is none, and
// fails where one was promised.
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

// Pool makes a pool that must be empty after the test.
func Pool(t testing.TB, from memmgr.Resource, options ...memmgr.PoolOption) *memmgr.Pool {
	t.Helper()
	p := memmgr.NewPool(from, options...)
	t.Cleanup(func() {
		memmgr.Flush()
		require.Zero(t, p.Stats().Allocation.Current, "memory did not come back")
		require.NoError(t, p.Close())
	})
	return p
}

// USM makes a pool of a kind of unified shared memory.
func USM(t testing.TB, kind syclobj.USMKind) *memmgr.Pool {
	t.Helper()
	upstream := memmgr.USM(Queue(t), kind)
	t.Cleanup(func() { require.NoError(t, memmgr.Close(upstream)) })
	return Pool(t, upstream)
}

// EveryMemory runs a test on the host backend and on each kind of USM.
func EveryMemory(t *testing.T, f func(t *testing.T, r memmgr.Resource)) {
	t.Run("host", func(t *testing.T) { f(t, Pool(t, memmgr.Host())) })
	for _, k := range []syclobj.USMKind{syclobj.USMHost, syclobj.USMShared, syclobj.USMDevice} {
		t.Run("usm-"+k.String(), func(t *testing.T) { f(t, USM(t, k)) })
	}
}

// Own releases an array after the test.
func Own(t testing.TB) func(*usmarray.Array, error) *usmarray.Array {
	return func(a *usmarray.Array, err error) *usmarray.Array {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(a.Release)
		return a
	}
}

// Content is the bytes of the elements in C order.
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

// List names what a directory holds.
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

// Python finds a Python that can do what the statements say; a test is skipped where there
// is none, and fails where peers were promised.
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
		t.Fatalf("USMBRIDGE_REQUIRE_PEERS=1, and with none of %q works: %s", tried, statements)
	}
	t.Skipf("with no Python of %q works: %s", tried, statements)
	return ""
}

// RunPython runs a script in a directory, with a Python that Python found.
func RunPython(t testing.TB, python, dir, script string, args ...string) {
	t.Helper()
	cmd := exec.Command(python, append([]string{"-c", script}, args...)...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "%s", text)
}

// Failing is a reader that does something else for what ends after a position.
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
