package usmarray

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// conversions runs testdata/conversions.py, which prints the results of NumPy and ml_dtypes.
func conversions(t *testing.T) (dir string) {
	t.Helper()
	py := numpyPython(t)
	if text, err := exec.Command(py, "-c", "import ml_dtypes").CombinedOutput(); err != nil {
		testenv.Missing(t, fmt.Sprintf("%s has no ml_dtypes: %s", py, text), testenv.Peers)
	}
	dir = t.TempDir()
	text, err := exec.Command(py, filepath.Join("testdata", "conversions.py"), dir).CombinedOutput()
	require.NoError(t, err, string(text))
	return dir
}

// ofBytes returns a host array with the given bytes.
func ofBytes(t *testing.T, dt DataType, raw []byte) *Array {
	t.Helper()
	a := testenv.Held(New(memmgr.Host(), dt, []int{len(raw) / dt.Size()}, Padded()))(t)
	copy(unsafe.Slice((*byte)(a.Pointer()), len(raw)), raw)
	return a
}

func bytesOf(a *Array) []byte { return unsafe.Slice((*byte)(a.Pointer()), a.NBytes()) }

// numpyTypes are the element types that NumPy and ml_dtypes have: all but
// complex32.
func numpyTypes() (all []DataType) {
	for _, dt := range dlpack.DataTypes() {
		if dt != dlpack.Complex32 {
			all = append(all, dt)
		}
	}
	return all
}

// equalElements compares the bytes of elements; all NaNs are equal.
func equalElements(t *testing.T, want, got []byte, dt DataType, what string) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	require.Len(t, got, len(want), what)
	c, n := newCodec(dt), dt.Size()
	if dt.IsComplex() {
		c, n = newCodec(partOf(dt)), n/2
	}
	for i := 0; i < len(want); i += n {
		w, g := want[i:i+n], got[i:i+n]
		if !bytes.Equal(w, g) && !(math.IsNaN(c.decode(w, 0).re) && math.IsNaN(c.decode(g, 0).re)) {
			t.Fatalf("%s: element %d is %v (% x), want %v (% x)", what, i/n, c.value(c.decode(g, 0)), g, c.value(c.decode(w, 0)), w)
		}
	}
}

// All pairs of element types against NumPy and ml_dtypes: dense, strided, from
// and to packed storage, and on a device.
func TestConversionsAgreeWithNumPy(t *testing.T) {
	dir := conversions(t)
	types := numpyTypes()
	require.Len(t, types, 32)
	memory := backends(t)
	device := memory[len(memory)-1].r
	for _, from := range types {
		raw := testenv.Must(os.ReadFile(filepath.Join(dir, from.String())))(t)
		src := ofBytes(t, from, raw)
		twice := testenv.Held(New(memmgr.Host(), from, []int{2 * src.Size()}, Padded()))(t)
		gaps := testenv.Must(twice.Index(All.By(-2)))(t)
		require.NoError(t, gaps.CopyFrom(src))
		near := testenv.Held(New(device, from, src.Shape()))(t)
		require.NoError(t, near.CopyFrom(src))
		for _, to := range types {
			what := from.String() + " to " + to.String()
			want, err := os.ReadFile(filepath.Join(dir, from.String()+"-"+to.String()))
			if err != nil {
				require.ErrorIs(t, testenv.ErrorOf(src.AsType(memmgr.Host(), to)), ErrType, what)
				require.True(t, from.IsComplex() && !to.IsComplex() && to != Bool, what)
				continue
			}
			got := testenv.Held(src.AsType(memmgr.Host(), to, Padded()))(t)
			equalElements(t, want, bytesOf(got), to, what)

			other := testenv.Held(New(memmgr.Host(), to, []int{2 * src.Size()}, Padded()))(t)
			apart := testenv.Must(other.Index(IndexFrom(1).By(2)))(t)
			require.NoError(t, apart.ConvertFrom(gaps), what)
			require.NoError(t, got.CopyFrom(apart), what)
			equalElements(t, want, bytesOf(got), to, what+" with strides")

			require.NoError(t, got.CopyFrom(testenv.Held(near.AsType(device, to))(t)), what)
			equalElements(t, want, bytesOf(got), to, what+" on a device, packed")
		}
	}
}

// TestConversionsOfComplex32: NumPy has no complex32, so it is compared with two float16.
func TestConversionsOfComplex32(t *testing.T) {
	h := memmgr.Host()
	z := testenv.Held(FromSlice(h, []complex128{1 + 2i, complex(65520, -1e-9), complex(math.NaN(), math.Inf(-1)), 0, complex(0, 3)}, nil))(t)
	half := testenv.Held(z.AsType(h, dlpack.Complex32))(t)
	require.Equal(t, "[ 1. +2.j inf -0.j nan-infj  0. +0.j  0. +3.j]", half.String())
	require.Equal(t, "[ True  True  True False  True]", testenv.Held(half.AsType(h, Bool))(t).String())
	require.ErrorIs(t, testenv.ErrorOf(half.AsType(h, Float16)), ErrType)
	require.Equal(t, half.String(), testenv.Held(half.AsType(h, Complex64))(t).String())
	require.Equal(t, "[3.+0.j]", testenv.Held(testenv.Held(FromSlice(h, []int8{3}, nil))(t).AsType(h, dlpack.Complex32))(t).String())
}

func TestConvertFrom(t *testing.T) {
	h := memmgr.Host()
	a := testenv.Held(Zeros(h, Float32, []int{2, 3}))(t)
	require.NoError(t, a.ConvertFrom(testenv.Held(FromSlice(h, []int64{1, 1<<24 + 1, -3}, nil))(t)))
	require.Equal(t, []float32{1, 1 << 24, -3, 1, 1 << 24, -3}, testenv.Must(ToSlice[float32](a))(t))
	require.ErrorIs(t, a.ConvertFrom(testenv.Held(Zeros(h, Bool, []int{2}))(t)), ErrLayout)
	require.ErrorIs(t, a.AsReadOnly().ConvertFrom(a), ErrReadOnly)
	require.ErrorIs(t, testenv.Held(Zeros(h, Int8, []int{0}))(t).ConvertFrom(testenv.Held(Zeros(h, Complex64, []int{0}))(t)), ErrType)
	// The same memory with another element size: read before it is written.
	wide := testenv.Held(FromSlice(h, []int32{1, 2, 3, 4}, nil))(t)
	l := testenv.Must(NewLayout([]int{4}, []int{1}, 0))(t)
	short := testenv.Must(WrapBuffer(wide.Buffer(), Int16, l))(t)
	require.NoError(t, short.ConvertFrom(wide))
	require.Equal(t, []int16{1, 2, 3, 4}, testenv.Must(ToSlice[int16](short))(t))
}
