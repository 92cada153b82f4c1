// Package transfertest has helpers for the tests of the file formats: pools of each kind of memory, readers
// that fail, and a Python interpreter with other libraries.
package transfertest

import (
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

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
	return Pool(t, testsycl.USM(t, testsycl.Queue(t), kind))
}

// EveryMemory runs a test with host memory and with each kind of USM.
func EveryMemory(t *testing.T, f func(t *testing.T, r memmgr.Resource)) {
	t.Run("host", func(t *testing.T) { f(t, Pool(t, memmgr.Host())) })
	for _, k := range []syclobj.USMKind{syclobj.USMHost, syclobj.USMShared, syclobj.USMDevice} {
		t.Run("usm-"+k.String(), func(t *testing.T) { f(t, USM(t, k)) })
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

// RunPython runs a script in a directory, with an interpreter that testenv.Interpreter returned.
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
