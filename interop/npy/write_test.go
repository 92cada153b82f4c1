package npy_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestTypesNumPyLacks(t *testing.T) {
	dir := t.TempDir()
	for _, dt := range dlpack.DataTypes() {
		a := testenv.Held(usmarray.New(memmgr.Host(), dt, []int{2}))(t)
		err := npy.Save(context.Background(), filepath.Join(dir, "a.npy"), a, npy.WriteOptions{})
		switch dt.Name() {
		case "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "complex64", "complex128":
			require.NoError(t, err)
		default:
			require.ErrorIs(t, err, usmarray.ErrType, dt)
		}
	}
	require.Equal(t, []string{"a.npy"}, transfertest.List(t, dir))
}

// TestReplaces checks that an existing file keeps its permissions, that processes that have it open still read the
// old contents, and that a symbolic link stays a link.
func TestReplaces(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	path, link := filepath.Join(dir, "a.npy"), filepath.Join(dir, "link.npy")
	require.NoError(t, os.WriteFile(path, []byte("the old one"), 0o640))
	require.NoError(t, os.Chmod(path, 0o604))
	require.NoError(t, os.Symlink("a.npy", link))
	before := testenv.Opened(os.Open(path))(t)
	a := testenv.Held(usmarray.Arange[int32](memmgr.Host(), 0, 1, 9))(t)
	require.NoError(t, npy.Save(ctx, link, a, npy.WriteOptions{}))
	require.Equal(t, "the old one", string(testenv.Must(io.ReadAll(before))(t)))
	require.Equal(t, a.String(), testenv.Held(npy.Load(ctx, path, memmgr.Host(), npy.ReadOptions{}))(t).String())
	info := testenv.Must(os.Stat(path))(t)
	require.Equal(t, fs.FileMode(0o604), info.Mode().Perm())
	info = testenv.Must(os.Lstat(link))(t)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
	require.Equal(t, []string{"a.npy", "link.npy"}, transfertest.List(t, dir))
}

// TestCancelledSave checks that Save with an ended context keeps the existing file. The error matches that of the context and
// its cause.
func TestCancelledSave(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.npy")
	a := testenv.Held(usmarray.Arange[int32](memmgr.Host(), 0, 1, 9))(t)
	reason := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	ends := func(err error) {
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, reason)
	}
	for _, inPlace := range []bool{false, true} {
		ends(npy.Save(ctx, path, a, npy.WriteOptions{InPlace: inPlace}))
		require.Empty(t, transfertest.List(t, dir))
	}
	ends(npy.Write(ctx, io.Discard, a))
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestFailingWriters checks streams that fail at any byte, that return short writes without an error, and contexts
// that end.
func TestFailingWriters(t *testing.T) {
	transfertest.EveryMemory(t, func(t *testing.T, r memmgr.Resource) {
		host := testenv.Held(usmarray.Arange[float32](memmgr.Host(), 0, 1, 3<<18))(t)
		a := testenv.Held(host.Copy(r))(t)
		for _, most := range []int{0, 1, 64, 128, 129, 1 << 20, 2<<20 + 128, 3<<20 + 127} {
			for _, want := range []error{errDisk, io.ErrShortWrite} {
				written := 0
				err := npy.Write(context.Background(), writerFunc(func(p []byte) (int, error) {
					n := min(len(p), most-written)
					written += n
					if n < len(p) && !errors.Is(want, io.ErrShortWrite) {
						return n, want
					}
					return n, nil
				}), a)
				require.ErrorIs(t, err, want)
			}
			ctx, cancel := context.WithCancel(context.Background())
			require.ErrorIs(t, npy.Write(ctx, writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }), a), context.Canceled)
		}
	})
}

func TestDiskFull(t *testing.T) { transfertest.DiskFull(t) }
