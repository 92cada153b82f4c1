package usmarray

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Every pattern of every type decodes as package dlpack says, and encodes back.
func TestMiniFloatsDecodeAndEncode(t *testing.T) {
	for dt, m := range miniFloats {
		bits := m.bits()
		if m.special == miniScale {
			bits = 8
		}
		require.Equal(t, int(dt.Bits), int(bits), dt)
		for raw := range uint32(1) << bits {
			want, ok := dt.DecodeFloat(uint64(raw))
			require.True(t, ok)
			got := m.decode(uint16(raw))
			if math.IsNaN(want) {
				require.True(t, math.IsNaN(got), "%v %#x", dt, raw)
				require.True(t, math.IsNaN(m.decode(m.encode(got))) || m.special == miniFinite)
				continue
			}
			require.Equal(t, want, got, "%v %#x", dt, raw)
			require.Equal(t, math.Signbit(want), math.Signbit(got))
			require.Equal(t, uint16(raw), m.encode(got), "%v %#x", dt, raw)
		}
	}
}

// encode takes the nearest value, and the even one of two equally near.
func TestMiniFloatsRound(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for dt, m := range miniFloats {
		if m.special == miniScale {
			continue
		}
		for range 2000 {
			raw := uint16(r.UintN(uint(m.largest())))
			a, b := m.decode(raw), m.decode(raw+1)
			for _, c := range []struct {
				v    float64
				want uint16
			}{
				{a + (b-a)*0.49, raw}, {a + (b-a)*0.51, raw + 1}, {a + (b-a)/2, raw + raw&1},
			} {
				require.Equal(t, c.want, m.encode(c.v), "%v %v between %v and %v", dt, c.v, a, b)
			}
		}
		over := m.decode(m.encode(m.decode(m.largest()) * 4))
		switch m.special {
		case miniIEEE:
			require.True(t, math.IsInf(over, 1), dt)
		case miniFinite:
			require.Equal(t, m.decode(m.largest()), over, dt)
		default:
			require.True(t, math.IsNaN(over), dt)
		}
	}
	e8 := miniFloats[dlpack.Float8E8M0FNU]
	require.Equal(t, 4.0, e8.decode(e8.encode(5)))
	require.Equal(t, 8.0, e8.decode(e8.encode(6.1)))
	require.True(t, math.IsNaN(e8.decode(e8.encode(-1))))
	require.Equal(t, math.Ldexp(1, -127), e8.decode(e8.encode(0)))
}

// The shortest digits identify the value, and no shorter ones do.
func TestMiniFloatsShortest(t *testing.T) {
	for dt, m := range miniFloats {
		for raw := uint16(1); raw <= m.largest(); raw += 1 + m.largest()/500 {
			v := m.decode(raw)
			d := m.shortest(v)
			require.Equal(t, raw, m.encode(d.value(t)), "%v %v", dt, v)
			if len(d.digits) > 1 && raw < m.largest() { // encode saturates there
				s := parseDecimal(v, len(d.digits)-2, 64)
				require.NotEqual(t, raw, m.encode(s.value(t)), "%v: %s is enough for %v", dt, s.digits, v)
			}
		}
	}
}

func (d decimal) value(t testing.TB) float64 {
	v, err := strconv.ParseFloat(string(d.digits)+"e"+strconv.Itoa(d.exp-len(d.digits)+1), 64)
	require.NoError(t, err)
	return v
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
		a := own(t)(New(memmgr.Host(), dt, []int{4}))
		for i, v := range []float64{0, 0.1, 1, -2.5} {
			require.NoError(t, a.SetAt(v, i))
		}
		require.Equal(t, want, a.String(), dt)
	}
	i := own(t)(Zeros(memmgr.Host(), dlpack.Int4, []int{3}))
	require.NoError(t, i.SetAt(-8, 1))
	require.Equal(t, "[ 0 -8  0]", i.String())
	s := own(t)(Full(memmgr.Host(), Bfloat16, nil, 3.14159))
	require.Equal(t, "3.14", s.String())
}
