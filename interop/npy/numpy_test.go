package npy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/npy"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// save is a script with which NumPy saves arrays of each type, order and version, and describes each in a JSON file,
// with its bytes in C order, little-endian.
const save = `
import json, io
import numpy as np
from numpy.lib import format
rng = np.random.default_rng(1)
cases = []
def add(a, version=None):
    name = f"{len(cases)}.npy"
    with open(name, "wb") as f:
        format.write_array(f, a, version=version)
    little = np.ascontiguousarray(a).astype(a.dtype.newbyteorder("<"))
    with open(name + ".raw", "wb") as f:
        f.write(little.tobytes())
    cases.append(dict(name=name, dtype=a.dtype.newbyteorder("=").name, shape=a.shape, version=list(version or (1, 0)),
        fortran=bool(a.flags.f_contiguous and not a.flags.c_contiguous), big=a.dtype.str[0] == ">"))
types = "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
for t in types:
    for order in "<>":
        for shape in [(), (0,), (7,), (3, 5), (2, 3, 4), (0, 4), (1, 9), (9, 1)]:
            n = int(np.prod(shape)) * np.dtype(t).itemsize
            raw = rng.integers(0, 256, n, dtype="u1").tobytes()
            if t == "b1": raw = bytes(b & 1 for b in raw)
            a = np.frombuffer(bytearray(raw), dtype=order + t).reshape(shape)
            add(a)
            if a.ndim > 1: add(np.asfortranarray(a))
for version in [(1, 0), (2, 0), (3, 0)]:
    add(np.arange(10, dtype="<f4").reshape(2, 5), version)
big = rng.integers(0, 256, (301, 503 * 16), dtype="u1").view("<c16")
add(big)
add(np.asfortranarray(big.astype(">c16")))
json.dump(cases, open("cases.json", "w"))
`

type numpyCase struct {
	Name    string
	DType   string `json:"dtype"`
	Shape   []int
	Version [2]int
	Fortran bool
	Big     bool
}

func TestReadsWhatNumPyWrites(t *testing.T) {
	dir := t.TempDir()
	runPython(t, dir, save)
	text := testenv.Must(os.ReadFile(filepath.Join(dir, "cases.json")))(t)
	var cases []numpyCase
	require.NoError(t, json.Unmarshal(text, &cases))
	require.Greater(t, len(cases), 300)
	ctx := context.Background()
	transfertest.EveryMemory(t, func(t *testing.T, r memmgr.Resource) {
		for i, c := range cases {
			if !r.Place().IsHost() && i%7 != 0 && i < len(cases)-2 {
				continue // all of them once, and of each other memory enough
			}
			path := filepath.Join(dir, c.Name)
			want := testenv.Must(os.ReadFile(path + ".raw"))(t)
			f, err := npy.Open(path)
			require.NoError(t, err, "%+v", c)
			h := f.Header()
			require.Equal(t, c.Version, h.Version)
			require.Equal(t, c.DType, h.DataType.Name(), "%+v", c)
			require.Equal(t, c.Shape, h.Shape)
			require.Equal(t, c.Fortran, h.FortranOrder)
			require.EqualValues(t, len(want), h.NBytes)
			require.Equal(t, c.Big && h.DataType.Size() > 1, h.BigEndian)
			a, err := f.Read(ctx, r, npy.ReadOptions{Readers: 3, Tag: "test"})
			require.NoError(t, err, "%+v", c)
			require.Equal(t, c.Shape, a.Shape())
			require.Same(t, r.Place(), a.Place())
			require.Equal(t, "test", a.Buffer().Tag())
			if c.Fortran {
				require.True(t, a.IsF())
			}
			require.True(t, string(want) == string(transfertest.Content(t, a)), "%+v", c)
			shards(t, f, r, a)
			a.Release()
			require.NoError(t, f.Close())
		}
	})
}

// shards compares rows of a file with those of the whole array.
func shards(t *testing.T, f *npy.File, r memmgr.Resource, whole *usmarray.Array) {
	t.Helper()
	ctx := context.Background()
	if whole.NDim() == 0 {
		require.ErrorIs(t, testenv.ErrorOf(f.ReadRows(ctx, r, 0, 0, npy.ReadOptions{})), usmarray.ErrIndex)
		return
	}
	n := whole.Shape()[0]
	for _, rows := range [][2]int{{0, n}, {0, n / 2}, {n / 3, n}, {n / 2, n / 2}, {n / 4, min(n/4+1, n)}} {
		a := testenv.Must(f.ReadRows(ctx, r, rows[0], rows[1], npy.ReadOptions{Readers: 2}))(t)
		part := testenv.Must(whole.Index(usmarray.IndexRange(rows[0], rows[1])))(t)
		require.Equal(t, part.Shape(), a.Shape())
		require.True(t, string(transfertest.Content(t, part)) == string(transfertest.Content(t, a)), "rows %v of %v", rows, whole.Shape())
		require.NoError(t, f.ReadRowsInto(ctx, a, rows[0], rows[1], npy.ReadOptions{}))
		require.True(t, string(transfertest.Content(t, part)) == string(transfertest.Content(t, a)), "rows %v of %v", rows, whole.Shape())
		a.Release()
	}
	for _, rows := range [][2]int{{-1, 0}, {0, n + 1}, {1, 0}} {
		require.ErrorIs(t, testenv.ErrorOf(f.ReadRows(ctx, r, rows[0], rows[1], npy.ReadOptions{})), usmarray.ErrIndex)
	}
}

// TestWritesWhatNumPyWrites checks that NumPy loads our files and saves files with the same bytes.
func TestWritesWhatNumPyWrites(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	var names []string
	transfertest.EveryMemory(t, func(t *testing.T, r memmgr.Resource) {
		for _, dt := range []usmarray.DataType{usmarray.Bool, usmarray.Int8, usmarray.Uint16, usmarray.Float16, usmarray.Float32, usmarray.Int64, usmarray.Complex64, usmarray.Complex128} {
			if !r.Place().IsHost() && dt != usmarray.Complex128 && dt != usmarray.Int8 {
				continue
			}
			for _, a := range layouts(t, r, dt) {
				name := fmt.Sprintf("%d.npy", len(names))
				names = append(names, name)
				path := filepath.Join(dir, name)
				require.NoError(t, npy.Save(ctx, path, a, npy.WriteOptions{Writers: 2, InPlace: len(names)%8 != 0}))
				require.NoError(t, os.WriteFile(path+".raw", transfertest.Content(t, a), 0o600))
				stream := testenv.Must(os.Create(path + ".stream"))(t)
				require.NoError(t, npy.Write(ctx, stream, a))
				require.NoError(t, stream.Close())
				b := testenv.Held(npy.Load(ctx, path, r, npy.ReadOptions{}))(t)
				require.True(t, string(transfertest.Content(t, a)) == string(transfertest.Content(t, b)), "%#v", a)
			}
		}
	})
	text := testenv.Must(json.Marshal(names))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "names.json"), text, 0o600))
	runPython(t, dir, `
import json, numpy as np
for name in json.load(open("names.json")):
    a = np.load(name)
    assert a.tobytes() == open(name + ".raw", "rb").read(), name
    ours = open(name, "rb").read()
    assert ours == open(name + ".stream", "rb").read(), name
    np.save("again.npy", a)
    assert ours == open("again.npy", "rb").read(), (name, ours[:200], a.flags)
`)
}

// layouts returns arrays of various layouts, some larger than one piece.
func layouts(t *testing.T, r memmgr.Resource, dt usmarray.DataType) []*usmarray.Array {
	t.Helper()
	count := func(shape ...int) *usmarray.Array {
		n := 1
		for _, d := range shape {
			n *= d
		}
		steps := testenv.Held(usmarray.Arange[int64](memmgr.Host(), 0, 1, n))(t)
		flat := testenv.Held(steps.AsType(r, dt))(t)
		return testenv.Must(flat.Reshape(shape...))(t)
	}
	view := func(a *usmarray.Array, err error) *usmarray.Array {
		t.Helper()
		require.NoError(t, err)
		return a
	}
	a := count(4, 5, 6)
	all := []*usmarray.Array{
		count(), count(0), count(7), a,
		view(a.Transpose()),
		view(a.Transpose(1, 0, 2)),
		view(a.Index(usmarray.All, usmarray.IndexRange(1, 4), usmarray.All.By(-2))),
		view(a.Index(usmarray.Ellipsis, usmarray.IndexAt(3))),
		view(count(3).Broadcast(4, 3)),
	}
	if dt == usmarray.Complex128 {
		large := count(301, 503)
		all = append(all, large, view(large.Transpose()),
			view(large.Index(usmarray.All, usmarray.All.By(2))),
			view(count(2, 3, 150, 170).Transpose(1, 0, 3, 2)))
	}
	return all
}
