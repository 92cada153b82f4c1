package dlpack_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
)

// narrow lists the types that have a FloatFormat.
func narrow(t *testing.T) map[dlpack.DataType]*dlpack.FloatFormat {
	out := map[dlpack.DataType]*dlpack.FloatFormat{}
	for _, d := range dlpack.DataTypes() {
		if f := d.FloatFormat(); f != nil {
			require.Equal(t, int(d.Bits), f.Bits(), d)
			out[d] = f
		}
	}
	require.Len(t, out, 13)
	return out
}

// TestFloatFormatsRoundTrip: the two types with their own decoder agree with the general one, and every
// bit pattern of every type encodes back.
func TestFloatFormatsRoundTrip(t *testing.T) {
	for d, f := range narrow(t) {
		for raw := range uint64(1) << f.Bits() {
			got := f.Decode(raw)
			want := got
			switch d {
			case dlpack.Float16:
				want = float64(dlpack.F16(raw).Float32())
			case dlpack.BFloat16:
				want = float64(dlpack.BF16(raw).Float32())
			}
			if math.IsNaN(want) {
				require.True(t, math.IsNaN(got), "%v %#x", d, raw)
				require.True(t, math.IsNaN(f.Decode(f.Encode(got))), "%v %#x", d, raw)
				continue
			}
			require.Equal(t, want, got, "%v %#x", d, raw)
			require.Equal(t, math.Signbit(want), math.Signbit(got))
			require.Equal(t, raw, f.Encode(got), "%v %#x", d, raw)
		}
	}
}

// TestFloatFormatsRound: Encode returns the nearest value, and the even one of two equally near.
func TestFloatFormatsRound(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for d, f := range narrow(t) {
		if d == dlpack.Float8E8M0FNU {
			continue
		}
		for range 2000 {
			raw := r.Uint64N(f.Largest())
			a, b := f.Decode(raw), f.Decode(raw+1)
			require.Equal(t, raw, f.Encode(a+(b-a)*0.49), "%v between %v and %v", d, a, b)
			require.Equal(t, raw+1, f.Encode(a+(b-a)*0.51), "%v between %v and %v", d, a, b)
			require.Equal(t, raw+raw&1, f.Encode(a+(b-a)/2), "%v between %v and %v", d, a, b)
		}
	}
	e8 := dlpack.Float8E8M0FNU.FloatFormat()
	for v, want := range map[float64]float64{5: 4, 6: 8, 6.1: 8, 1e-300: math.Ldexp(1, -127)} {
		require.Equal(t, want, e8.Decode(e8.Encode(v)), v)
	}
	for _, v := range []float64{-1, 0, math.Inf(1), 1e300, math.NaN()} {
		require.True(t, math.IsNaN(e8.Decode(e8.Encode(v))), v)
	}
}

// TestFloatFormatsOverflow encodes values above the largest number in types with different special values.
func TestFloatFormatsOverflow(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for d, want := range map[dlpack.DataType]float64{
		dlpack.Float16: inf, dlpack.BFloat16: inf, dlpack.Float8E5M2: inf, dlpack.Float8E4M3: inf, dlpack.Float8E3M4: inf,
		dlpack.Float8E4M3FN: nan, dlpack.Float8E4M3FNUZ: nan, dlpack.Float8E5M2FNUZ: nan, dlpack.Float8E4M3B11FNUZ: nan,
		dlpack.Float6E2M3FN: 7.5, dlpack.Float6E3M2FN: 28, dlpack.Float4E2M1FN: 6,
	} {
		f := d.FloatFormat()
		for _, v := range []float64{f.Decode(f.Largest()) * 4, inf} {
			up, down := f.Decode(f.Encode(v)), f.Decode(f.Encode(-v))
			if math.IsNaN(want) {
				require.True(t, math.IsNaN(up) && math.IsNaN(down), d)
				continue
			}
			require.Equal(t, []float64{want, -want}, []float64{up, down}, d)
		}
		require.Equal(t, d == dlpack.Float6E2M3FN || d == dlpack.Float6E3M2FN || d == dlpack.Float4E2M1FN,
			!math.IsNaN(f.Decode(f.Encode(nan))), d)
	}
	require.Equal(t, uint64(0x20), dlpack.Float6E2M3FN.FloatFormat().Encode(nan), "NaN is -0 where there is none")
	require.Zero(t, dlpack.Float6E2M3FN.FloatFormat().Encode(math.Copysign(nan, -1)))
	require.Equal(t, uint64(0xff), dlpack.Float8E4M3FN.FloatFormat().Encode(math.Copysign(nan, -1)))
	require.Zero(t, dlpack.Float8E4M3FNUZ.FloatFormat().Encode(math.Copysign(0, -1)), "the type has no -0")
	require.Nil(t, dlpack.Float32.FloatFormat())
}
