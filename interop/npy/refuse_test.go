package npy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// file returns a .npy file with a header of version 1.0.
func file(header string, data int) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return append(append(b, header...), make([]byte, data)...)
}

func open(b []byte) (*npy.File, error) { return npy.NewFile(bytes.NewReader(b), int64(len(b))) }

// saved returns the file of an array of 6 float32 elements.
func saved(t testing.TB) []byte {
	t.Helper()
	a := testenv.Held(usmarray.FromSlice(memmgr.Host(), []float32{1, 2, 3, 4, 5, 6}, []int{2, 3}))(t)
	var b bytes.Buffer
	require.NoError(t, npy.Write(context.Background(), &b, a))
	return b.Bytes()
}

// isKnown reports whether an error of a header is ErrFormat or ErrType.
func isKnown(err error) bool {
	return errors.Is(err, npy.ErrFormat) != errors.Is(err, usmarray.ErrType)
}

func TestHeaders(t *testing.T) {
	for text, want := range map[string]error{
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }":        nil,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}  \n":      nil,
		`{"shape":(2,3,),"fortran_order":True,"descr":"<f4"}`:                nil,
		"{ 'descr' : '<f4' ,\t'fortran_order':False\n,'shape': ( 2L , 3L )}": nil,
		"{'descr': '=f4', 'fortran_order': False, 'shape': ()}":              nil,
		"{'descr': 'f4', 'fortran_order': False, 'shape': (6,)}":             nil,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4)}":          nil,

		"{'descr': 'float32', 'fortran_order': False, 'shape': (6,)}": nil,

		"": npy.ErrFormat, "{": npy.ErrFormat, "{}": npy.ErrFormat, "[]": npy.ErrFormat, "None": npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False}":                                              npy.ErrFormat,
		"{'descr': '<f4', 'shape': (2, 3)}":                                                     npy.ErrFormat,
		"{'fortran_order': False, 'shape': (2, 3)}":                                             npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}":                  npy.ErrFormat,
		"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}":             npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x":                           npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)":                              npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}":                                 npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': Falsely, 'shape': (2, 3)}":                           npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3]}":                             npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (6)}":                                npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}":                              npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}":                                npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}":                            npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 3)}":                           npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (02, 3)}":                            npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1+1, 3)}":                           npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}":            npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}":           npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4611686018427387904, 4)}":        npy.ErrFormat,
		"{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976, )}":            npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (" + strings.Repeat("1,", 65) + ")}": npy.ErrFormat,
		"{'descr': '<f4\\x30', 'fortran_order': False, 'shape': (2, 3)}":                        npy.ErrFormat,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (7,)}":                               npy.ErrFormat,
		"__import__('os').system('true')":                                                       npy.ErrFormat,

		"{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (2,)}": usmarray.ErrType,
		"{'descr': ('<f4', (3,)), 'fortran_order': False, 'shape': (2,)}":                usmarray.ErrType,
		"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}":                         usmarray.ErrType,
		"{'descr': '<U3', 'fortran_order': False, 'shape': (2,)}":                        usmarray.ErrType,
		"{'descr': '|S3', 'fortran_order': False, 'shape': (2,)}":                        usmarray.ErrType,
		"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,)}":                    usmarray.ErrType,
		"{'descr': '|V2', 'fortran_order': False, 'shape': (2,)}":                        usmarray.ErrType,
		"{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}":                       usmarray.ErrType,
		"{'descr': '<c32', 'fortran_order': False, 'shape': (1,)}":                       usmarray.ErrType,
		"{'descr': '<float32', 'fortran_order': False, 'shape': (1,)}":                   usmarray.ErrType,
		"{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}":                        usmarray.ErrType,
		"{'descr': '', 'fortran_order': False, 'shape': (1,)}":                           usmarray.ErrType,
	} {
		f, err := open(file(text, 24))
		if want == nil {
			require.NoError(t, err, text)
			require.NoError(t, f.Close())
			continue
		}
		require.Nil(t, f, text)
		require.ErrorIs(t, err, want, text)
		op := testenv.As[*npy.OpError](t, err)
		require.Equal(t, "NewFile", op.Op)
	}
}

// TestSpellings checks that element types are read by each name that numpy.load reads, with its size and byte order.
func TestSpellings(t *testing.T) {
	dir := t.TempDir()
	runPython(t, dir, `
import numpy as np, json, string
names = [*string.ascii_letters, "?", "bool", "bool_", *np.typecodes["All"], *np.sctypeDict]
found = {}
for name in {order + n for n in names if isinstance(n, str) for order in ("", "<", ">", "=", "|")}:
    try:
        d = np.lib.format.descr_to_dtype(name)
    except TypeError:
        continue
    if d.kind in "biufc" and d.itemsize <= 8 * (1 + (d.kind == "c")):
        found[name] = [d.name, not d.isnative]
json.dump(found, open("found.json", "w"))
`)
	var found map[string][2]any
	require.NoError(t, json.Unmarshal(testenv.Must(os.ReadFile(filepath.Join(dir, "found.json")))(t), &found))
	require.Contains(t, found, "?")
	for name, want := range found {
		f, err := open(file("{'descr': '"+name+"', 'fortran_order': False, 'shape': (1,)}", 16))
		require.NoError(t, err, name)
		h := f.Header()
		require.Equal(t, want, [2]any{h.DataType.String(), h.BigEndian}, name)
		require.NoError(t, f.Close())
	}
}

// TestArchive checks that the error of an .npz file names it.
func TestArchive(t *testing.T) {
	for _, begin := range []string{"PK\x03\x04", "PK\x05\x06", "PK"} {
		_, err := open([]byte(begin + strings.Repeat("\x00", 30)))
		require.ErrorIs(t, err, npy.ErrFormat)
		require.ErrorContains(t, err, ".npz")
	}
}

// TestPickles checks that files of NumPy with unsupported types are refused, with the name of the type.
func TestPickles(t *testing.T) {
	dir := t.TempDir()
	runPython(t, dir, `
import numpy as np, ml_dtypes
np.save("object.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
np.save("struct.npy", np.zeros(3, dtype=[("a", "<f4"), ("b", "<i4", (2,))]))
np.save("text.npy", np.array(["a", "bc"]))
np.save("bytes.npy", np.array([b"a", b"bc"]))
np.save("date.npy", np.array(["2020-01-01"], dtype="M8[D]"))
np.save("long.npy", np.zeros(3, dtype="g"))
np.save("bfloat16.npy", np.zeros(3, dtype=ml_dtypes.bfloat16))
np.save("wide.npy", np.zeros(3, dtype=[(f"field{i}", "<f4") for i in range(6000)]))
`)
	for name, said := range map[string]string{"object": "pickle", "struct": "structured", "text": "text", "bytes": "byte strings",
		"date": "dates", "long": "size", "bfloat16": "bfloat16"} {
		_, err := npy.Open(filepath.Join(dir, name+".npy"))
		require.ErrorIs(t, err, usmarray.ErrType, name)
		require.ErrorContains(t, err, said)
		require.ErrorContains(t, err, name+".npy")
	}
	testenv.Failed(t, testenv.ErrorOf(npy.Open(filepath.Join(dir, "wide.npy"))), npy.ErrFormat, "structured")
}

func TestTruncatedAtEveryByte(t *testing.T) {
	whole := saved(t)
	for n := range whole {
		_, err := open(whole[:n])
		require.ErrorIs(t, err, npy.ErrFormat, "%d bytes", n)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes", n)
	}
	require.NoError(t, testenv.ErrorOf(open(append(whole, "something else"...))))
	for _, b := range [][]byte{[]byte("PK\x03\x04 is a .npz"), append([]byte("\x93NUMPY\x04\x00"), whole[8:]...), append([]byte("\x93NUMPY\x01\x01"), whole[8:]...)} {
		_, err := open(b)
		require.ErrorIs(t, err, npy.ErrFormat)
		require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	// No memory is allocated for a header of 4 GiB.
	require.ErrorIs(t, testenv.ErrorOf(open(append([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), whole...))), npy.ErrFormat)
}

// TestNothingIsAllocatedForALie checks that a file with fewer bytes than its header requires is refused before the
// resource is called.
func TestNothingIsAllocatedForALie(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npy")
	pool := memmgr.NewPool(memmgr.Host())
	defer pool.Close()
	for _, c := range []struct {
		items string
		want  error
		asked int64
	}{{"1000000000000", npy.ErrFormat, 0}, {"9", npy.ErrFormat, 0}, {"8", nil, 1}} {
		require.NoError(t, os.WriteFile(path, file("{'descr': '<f8', 'fortran_order': False, 'shape': ("+c.items+",)}", 64), 0o600))
		a, err := npy.Load(context.Background(), path, pool, npy.ReadOptions{})
		require.ErrorIs(t, err, c.want)
		a.Release()
		require.Equal(t, c.asked, pool.Stats().Allocation.Allocated)
	}
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	a := testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Int8, []int{3}))(t)
	paths := append(specialFiles(t, dir), dir)
	for _, path := range paths {
		require.ErrorIs(t, testenv.ErrorOf(npy.Open(path)), npy.ErrNotRegular, path)
		require.ErrorIs(t, testenv.ErrorOf(npy.Load(ctx, path, memmgr.Host(), npy.ReadOptions{})), npy.ErrNotRegular, path)
		for _, inPlace := range []bool{false, true} {
			require.ErrorIs(t, npy.Save(ctx, path, a, npy.WriteOptions{InPlace: inPlace}), npy.ErrNotRegular, path)
		}
	}
	require.ErrorIs(t, testenv.ErrorOf(npy.Open(filepath.Join(dir, "none"))), fs.ErrNotExist)
	require.ErrorIs(t, npy.Save(ctx, filepath.Join(dir, "none", "a.npy"), a, npy.WriteOptions{}), fs.ErrNotExist)
	require.Error(t, testenv.ErrorOf(npy.NewFile(nil, 3)))
	require.Error(t, testenv.ErrorOf(npy.NewFile(bytes.NewReader(nil), -3)))
}

// large returns a file of several pieces, and the length of its header.
func large(t testing.TB) ([]byte, int) {
	t.Helper()
	a := testenv.Held(usmarray.Arange[float32](memmgr.Host(), 0, 1, 5<<18))(t)
	var b bytes.Buffer
	require.NoError(t, npy.Write(context.Background(), &b, a))
	return b.Bytes(), b.Len() - a.NBytes()
}

var errDisk = errors.New("the disk is broken")

// TestFailingReaders checks that a reader that fails at any position makes the read return its error and leaves no
// memory.
func TestFailingReaders(t *testing.T) {
	whole, start := large(t)
	ctx := context.Background()
	transfertest.EveryMemory(t, func(t *testing.T, r memmgr.Resource) {
		for name, c := range map[string]struct {
			fail func(p []byte, at int64) (int, error)
			want error
		}{
			"error":        {func([]byte, int64) (int, error) { return 0, errDisk }, errDisk},
			"shrunk":       {func([]byte, int64) (int, error) { return 0, io.EOF }, io.ErrUnexpectedEOF},
			"half":         {func(p []byte, _ int64) (int, error) { return len(p) / 2, io.EOF }, io.ErrUnexpectedEOF},
			"silent":       {func([]byte, int64) (int, error) { return 0, nil }, io.ErrUnexpectedEOF},
			"lying":        {func(p []byte, _ int64) (int, error) { return len(p) + 1, nil }, nil},
			"lying below":  {func([]byte, int64) (int, error) { return -1, nil }, nil},
			"half failing": {func(p []byte, _ int64) (int, error) { return len(p) / 2, errDisk }, errDisk},
		} {
			for _, from := range []int{start + 3, start + 1<<20 + 1, len(whole) - 1} {
				for _, readers := range []int{1, 4} {
					f, err := npy.NewFile(&transfertest.Failing{ReaderAt: bytes.NewReader(whole), From: int64(from), Fail: c.fail}, int64(len(whole)))
					require.NoError(t, err, name)
					a, err := f.Read(ctx, r, npy.ReadOptions{Readers: readers})
					require.Error(t, err, name)
					require.Nil(t, a)
					if c.want != nil {
						require.ErrorIs(t, err, c.want, name)
					}
				}
			}
		}
		f := testenv.Must(npy.NewFile(&transfertest.Failing{ReaderAt: bytes.NewReader(whole), From: int64(start + 1), Fail: func([]byte, int64) (int, error) { panic(errDisk) }}, int64(len(whole))))(t)
		for _, readers := range []int{1, 4} {
			require.PanicsWithValue(t, errDisk, func() { _, _ = f.Read(ctx, r, npy.ReadOptions{Readers: readers}) })
		}
		f = testenv.Must(npy.NewFile(&transfertest.Failing{ReaderAt: bytes.NewReader(whole), From: int64(start + 1), Fail: func([]byte, int64) (int, error) { runtime.Goexit(); return 0, nil }}, int64(len(whole))))(t)
		for _, readers := range []int{1, 4} {
			ended := make(chan error) // an error where another goroutine than the caller's ended
			go func() {
				defer close(ended)
				_, err := f.Read(ctx, r, npy.ReadOptions{Readers: readers})
				ended <- err
			}()
			if err, returned := <-ended; returned {
				require.ErrorContains(t, err, "Goexit")
				<-ended
			}
		}
	})
}

// TestShrinks checks the error of a file that is truncated between Open and Read.
func TestShrinks(t *testing.T) {
	whole, start := large(t)
	path := filepath.Join(t.TempDir(), "a.npy")
	for _, left := range []int{0, start, start + 1, len(whole) - 1} {
		require.NoError(t, os.WriteFile(path, whole, 0o600))
		f := testenv.Must(npy.Open(path))(t)
		require.NoError(t, os.Truncate(path, int64(left)))
		testenv.Failed(t, testenv.ErrorOf(f.Read(context.Background(), transfertest.Pool(t, memmgr.Host()), npy.ReadOptions{})), io.ErrUnexpectedEOF, path)
		require.NoError(t, f.Close())
	}
}

// TestCancelledInTheMiddle ends the context while a reader is in the middle of the file.
func TestCancelledInTheMiddle(t *testing.T) {
	whole, start := large(t)
	transfertest.EveryMemory(t, func(t *testing.T, r memmgr.Resource) {
		for _, at := range []int{start, start + 1<<20, start + 3<<20} {
			for _, readers := range []int{1, 3} {
				reason := errors.New("the client left")
				ctx, cancel := context.WithCancelCause(context.Background())
				src := &transfertest.Failing{ReaderAt: bytes.NewReader(whole), From: int64(at)}
				calls := 0 // after the end, by as many goroutines as there are
				src.Fail = func(p []byte, pos int64) (int, error) {
					cancel(reason)
					if readers == 1 {
						calls++
					}
					return src.ReaderAt.ReadAt(p, pos)
				}
				f := testenv.Must(npy.NewFile(src, int64(len(whole))))(t)
				err := testenv.ErrorOf(f.Read(ctx, r, npy.ReadOptions{Readers: readers}))
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, reason)
				require.LessOrEqual(t, calls, 1, "it reads on")
				err = testenv.ErrorOf(f.Read(ctx, r, npy.ReadOptions{Readers: readers}))
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, reason)
			}
		}
	})
}

// TestLimits checks that a read beyond the limit of its pool waits for memory if its context can end, and fails
// otherwise.
func TestLimits(t *testing.T) {
	whole, _ := large(t)
	f := testenv.Must(open(whole))(t)
	pool := transfertest.Pool(t, memmgr.Host(), memmgr.WithLimit(8<<20))
	first := testenv.Must(f.Read(context.Background(), pool, npy.ReadOptions{}))(t)
	_, err := f.Read(context.Background(), pool, npy.ReadOptions{})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	require.ErrorIs(t, err, usmarray.ErrOutOfMemory)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, testenv.ErrorOf(f.Read(ctx, pool, npy.ReadOptions{})), context.DeadlineExceeded)

	ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	second := make(chan error, 1)
	go func() {
		a, err := f.Read(ctx, pool, npy.ReadOptions{})
		if err == nil {
			a.Release()
		}
		second <- err
	}()
	require.Eventually(t, func() bool { return pool.Stats().NumWaiting == 1 }, time.Minute, time.Millisecond)
	first.Release()
	require.NoError(t, <-second)

	require.ErrorIs(t, testenv.ErrorOf(f.Read(context.Background(), memmgr.NewLimit(memmgr.Host(), 1<<20), npy.ReadOptions{})), memmgr.ErrOutOfMemory)
	require.ErrorIs(t, testenv.ErrorOf(f.Read(context.Background(), nil, npy.ReadOptions{})), memmgr.ErrRequest)
}

func TestReadIntoWants(t *testing.T) {
	ctx := context.Background()
	f := testenv.Must(open(saved(t)))(t)
	fits := testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{2, 3}))(t)
	require.NoError(t, f.ReadInto(ctx, fits, npy.ReadOptions{}))
	require.Equal(t, "[[1. 2. 3.]\n [4. 5. 6.]]", fits.String())
	other := testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Float64, []int{2, 3}))(t)
	require.ErrorIs(t, f.ReadInto(ctx, other, npy.ReadOptions{}), usmarray.ErrType)
	other = testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{3, 2}))(t)
	require.ErrorIs(t, f.ReadInto(ctx, other, npy.ReadOptions{}), usmarray.ErrLayout)
	require.ErrorIs(t, f.ReadInto(ctx, testenv.Must(other.Transpose())(t), npy.ReadOptions{}), usmarray.ErrLayout)
	require.ErrorIs(t, f.ReadInto(ctx, fits.AsReadOnly(), npy.ReadOptions{}), usmarray.ErrReadOnly)
	part := testenv.Must(testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{4, 3}))(t).Index(usmarray.IndexRange(2, 3)))(t)
	require.NoError(t, f.ReadRowsInto(ctx, part, 1, 2, npy.ReadOptions{}))
	require.Equal(t, "[[4. 5. 6.]]", part.String())
	require.ErrorIs(t, f.ReadRowsInto(ctx, part, 1, 3, npy.ReadOptions{}), usmarray.ErrIndex)
}

func TestClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npy")
	require.NoError(t, os.WriteFile(path, saved(t), 0o600))
	f := testenv.Must(npy.Open(path))(t)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.ErrorIs(t, testenv.ErrorOf(f.Read(context.Background(), memmgr.Host(), npy.ReadOptions{})), fs.ErrClosed)
	require.Equal(t, []int{2, 3}, f.Header().Shape)
}
