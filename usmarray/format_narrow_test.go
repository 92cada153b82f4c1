package usmarray

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// TestShortestOfNarrowTypes: the printed digits identify the value, and fewer digits do not.
func TestShortestOfNarrowTypes(t *testing.T) {
	formats := 0
	for _, dt := range dlpack.DataTypes() {
		m := dt.FloatFormat()
		if m == nil {
			continue
		}
		formats++
		for raw := uint64(1); raw <= m.Largest(); raw += 1 + m.Largest()/500 {
			v := m.Decode(raw)
			d := shortestNarrow(m, v)
			require.Equal(t, raw, m.Encode(d.value(t)), "%v %v", dt, v)
			if len(d.digits) > 1 && raw < m.Largest() { // Encode saturates there
				s := parseDecimal(v, len(d.digits)-2, 64)
				require.NotEqual(t, raw, m.Encode(s.value(t)), "%v: %s is enough for %v", dt, s.digits, v)
			}
		}
	}
	require.Equal(t, 13, formats)
}

func (d decimal) value(t testing.TB) float64 {
	return testenv.Must(strconv.ParseFloat(string(d.digits)+"e"+strconv.Itoa(d.exp-len(d.digits)+1), 64))(t)
}

func TestPrintNarrowTypes(t *testing.T) {
	for dt, want := range map[DataType]string{
		Float16:                  "[ 0.   0.1  1.  -2.5]",
		Bfloat16:                 "[ 0.   0.1  1.  -2.5]",
		dlpack.Float8E4M3FN:      "[ 0.   0.1  1.  -2.5]",
		dlpack.Float8E5M2:        "[ 0.    0.09  1.   -2.5 ]",
		dlpack.Float8E4M3FNUZ:    "[ 0.   0.1  1.  -2.5]",
		dlpack.Float6E2M3FN:      "[ 0.   0.1  1.  -2.5]",
		dlpack.Float4E2M1FN:      "[ 0.  0.  1. -2.]",
		dlpack.Complex32:         "[ 0. +0.j  0.1+0.j  1. +0.j -2.5+0.j]",
		dlpack.Float8E3M4:        "[ 0.    0.09  1.   -2.5 ]",
		dlpack.Float8E4M3:        "[ 0.   0.1  1.  -2.5]",
		dlpack.Float8E4M3B11FNUZ: "[ 0.   0.1  1.  -2.5]",
	} {
		a := testenv.Held(New(memmgr.Host(), dt, []int{4}))(t)
		for i, v := range []float64{0, 0.1, 1, -2.5} {
			require.NoError(t, a.SetAt(v, i))
		}
		require.Equal(t, want, a.String(), dt)
	}
	i := testenv.Held(Zeros(memmgr.Host(), dlpack.Int4, []int{3}))(t)
	require.NoError(t, i.SetAt(-8, 1))
	require.Equal(t, "[ 0 -8  0]", i.String())
	require.Equal(t, "3.14", testenv.Held(Full(memmgr.Host(), Bfloat16, nil, 3.14159))(t).String())
}
