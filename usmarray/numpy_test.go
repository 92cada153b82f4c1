package usmarray

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// numpyScript prints NumPy's str of each given array.
const numpyScript = `
import sys, json, base64
import numpy as np
from numpy.lib.stride_tricks import as_strided
out = []
for c in json.load(sys.stdin):
    raw = np.frombuffer(bytearray(base64.b64decode(c["data"])), dtype=c["dtype"])
    if 0 in c["shape"]:
        a = np.zeros(c["shape"], dtype=c["dtype"])
    else:
        item = raw.itemsize
        a = as_strided(raw[c["offset"]:] if c["shape"] != [] else raw[c["offset"]:c["offset"]+1], shape=c["shape"], strides=[s * item for s in c["strides"]])
    out.append([str(a), np.array2string(a, separator=", ", prefix="array(", suffix=")") if a.ndim else str(a)])
json.dump(out, sys.stdout)
`

type numpyCase struct {
	DType   string `json:"dtype"`
	Data    []byte `json:"-"`
	Encoded string `json:"data"`
	Shape   []int  `json:"shape"`
	Strides []int  `json:"strides"`
	Offset  int    `json:"offset"`
}

// numpyPython returns a Python with NumPy 2.3 or later. Older releases print numbers by other rules: they do
// not look at the type before they choose an exponent.
func numpyPython(t testing.TB) string {
	t.Helper()
	return testenv.Interpreter(t, "import numpy; assert tuple(map(int, numpy.__version__.split('.')[:2])) >= (2, 3)")
}

func numpyStrings(t testing.TB, cases []numpyCase) [][2]string {
	t.Helper()
	py := numpyPython(t)
	for i := range cases {
		cases[i].Encoded = base64.StdEncoding.EncodeToString(cases[i].Data)
	}
	f := testenv.Opened(os.CreateTemp(t.TempDir(), "cases"))(t)
	require.NoError(t, json.NewEncoder(f).Encode(cases))
	_, err := f.Seek(0, 0)
	require.NoError(t, err)
	cmd := exec.Command(py, "-c", numpyScript)
	cmd.Stdin = f
	cmd.Stderr = os.Stderr
	text := testenv.Must(cmd.Output())(t)
	var out [][2]string
	require.NoError(t, json.Unmarshal(text, &out))
	require.Len(t, out, len(cases))
	return out
}

// render prints a case with this package.
func (c *numpyCase) render(t testing.TB, opts PrintOptions) string {
	t.Helper()
	dt := testenv.Must(parseTypeStr(c.DType))(t)
	l := mustLayout(t, c.Shape, c.Strides, c.Offset)
	cd := newCodec(dt)
	size := dt.Size()
	return printElements(&l, &cd, opts, func(p int) element { return cd.decode(c.Data[p*size:(p+1)*size], 0) })
}

func TestPrintAsNumPy(t *testing.T) {
	cases := printCases()
	want := numpyStrings(t, cases)
	bad := 0
	for i, c := range cases {
		got := c.render(t, PrintOptions{})
		repr := c.render(t, PrintOptions{Separator: ", ", Prefix: "array(", Suffix: ")"})
		if got != want[i][0] || repr != want[i][1] {
			bad++
			if bad <= 5 {
				t.Errorf("%s %v %v\nwant %s\n got %s\nwant %s\n got %s", c.DType, c.Shape, c.Strides, want[i][0], got, want[i][1], repr)
			}
		}
	}
	require.Zero(t, bad, "of %d arrays", len(cases))
	t.Logf("%d arrays agree with NumPy", len(cases))
}

func rawOf[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))...)
}

// printCases returns arrays of all types that NumPy has, with many layouts and with values near the limits of
// the printing rules.
func printCases() []numpyCase {
	var out []numpyCase
	r := rand.New(rand.NewPCG(1, 2))
	add := func(dtype string, data []byte, item int) {
		n := len(data) / item
		out = append(out, numpyCase{DType: dtype, Data: data, Shape: []int{n}, Strides: []int{1}})
		for range 3 {
			out = append(out, randomView(r, dtype, data, n))
		}
		for i := range min(n, 4) {
			out = append(out, numpyCase{DType: dtype, Data: data, Shape: []int{}, Strides: []int{}, Offset: i})
		}
	}
	for range 30 {
		n := 1 + r.IntN(12)
		if r.IntN(6) == 0 {
			n = 900 + r.IntN(700) // NumPy summarizes more than 1000
		}
		style := r.IntN(7)
		f64 := make([]float64, 2*n)
		for i := range f64 {
			f64[i] = sampleFloat(r, style)
		}
		f32 := make([]float32, 2*n)
		f16 := make([]uint16, n)
		for i, v := range f64 {
			f32[i] = float32(v)
			if i < n {
				f16[i] = uint16(Float16.FloatFormat().Encode(v))
			}
		}
		add("<f8", rawOf(f64[:n]), 8)
		add("<f4", rawOf(f32[:n]), 4)
		add("<f2", rawOf(f16), 2)
		add("<c16", rawOf(f64), 16)
		add("<c8", rawOf(f32), 8)
		u := make([]uint64, n)
		for i := range u {
			u[i] = r.Uint64() >> (r.IntN(8) * 8)
		}
		raw := rawOf(u)
		for dtype, item := range map[string]int{"<i8": 8, "<u8": 8, "<i4": 4, "<u4": 4, "<i2": 2, "<u2": 2, "|i1": 1, "|u1": 1} {
			add(dtype, raw[:n*item], item)
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.IntN(2))
		}
		add("|b1", b, 1)
	}
	half := make([]uint16, 0x400) // every exponent, a slice of the fractions each
	for k := range 64 {
		for i := range half {
			half[i] = uint16(k*len(half) + i)
		}
		for i := 0; i < len(half); i += 16 {
			out = append(out, numpyCase{DType: "<f2", Data: rawOf(half[i : i+16]), Shape: []int{16}, Strides: []int{1}})
		}
	}
	for _, n := range []int{1000, 1001} { // the largest array that is not summarized, and the smallest that is
		out = append(out, numpyCase{DType: "|u1", Data: make([]byte, n), Shape: []int{n}, Strides: []int{1}})
	}
	out = append(out, numpyCase{DType: "<f4", Shape: []int{0, 3}, Strides: []int{3, 1}})
	return out
}

func sampleFloat(r *rand.Rand, style int) float64 {
	switch style {
	case 0:
		return r.Float64()
	case 1:
		return float64(r.IntN(2001) - 1000)
	case 2:
		return r.NormFloat64() * math.Pow10(r.IntN(40)-20)
	case 3:
		return float64(r.IntN(20001)-10000) / 100
	case 4:
		return []float64{0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 0.5, 1e-4, 9.9999e-5, 1000, 999.5, 1e6, 1e8, 99999999, 65504}[r.IntN(16)]
	case 5:
		return math.Float64frombits(r.Uint64())
	}
	return math.Ldexp(1, r.IntN(40)-20) * float64(1-2*r.IntN(2))
}

// randomView returns a random strided view of n elements.
func randomView(r *rand.Rand, dtype string, data []byte, n int) numpyCase {
	l, _ := NewLayout([]int{n}, nil, 0)
	if f := factor(r, n); f > 1 {
		l, _ = l.reshape(f, n/f)
		if g := factor(r, n/f); g > 1 {
			l, _ = l.reshape(f, g, n/f/g)
		}
	}
	if r.IntN(2) == 0 {
		l, _ = l.transpose()
	}
	items := make([]Index, 0, 4)
	for range l.NDim() {
		switch r.IntN(5) {
		case 0:
			items = append(items, All.By(-1))
		case 1:
			items = append(items, All.By(1+r.IntN(3)))
		default:
			items = append(items, All)
		}
	}
	l, _ = l.index(items...)
	return numpyCase{DType: dtype, Data: data, Shape: append([]int{}, l.shape...), Strides: append([]int{}, l.strides...), Offset: l.offset}
}

// factor returns a random divisor of n.
func factor(r *rand.Rand, n int) int {
	f := 1 + r.IntN(n)
	for n%f != 0 {
		f--
	}
	return f
}
