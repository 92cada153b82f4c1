package cute

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// randomView returns a random layout: mostly compact in a random order, often with modes of size 1,
// broadcasts, odd strides or reversals.
func randomView(r *rand.Rand) dlpack.View {
	rank := r.IntN(6)
	if r.IntN(8) == 0 {
		rank = 8 + r.IntN(3)
	}
	v := dlpack.View{
		Shape: make([]int64, rank), Strides: make([]int64, rank),
		DataType: float32Type, Device: dlpack.Device{Type: 1},
	}
	stride := int64(1)
	for _, mode := range r.Perm(rank) {
		v.Shape[mode] = int64(1 + r.IntN(4))
		v.Strides[mode] = stride
		stride *= v.Shape[mode]
		switch {
		case v.Shape[mode] == 1 && r.IntN(2) == 0:
			v.Strides[mode] = int64(r.IntN(9) - 2)
		case r.IntN(12) == 0:
			v.Strides[mode] = int64(r.IntN(9) - 4)
		}
	}
	return v
}

// randomMark applies one mark, which may fail, and reports whether it took effect.
func randomMark(r *rand.Rand, s *Spec) error {
	rank := s.Rank()
	if r.IntN(2) == 0 {
		lead := Deduce
		if r.IntN(2) == 0 {
			lead = r.IntN(2*rank+3) - rank - 1
		}
		return s.MarkLayoutDynamic(lead)
	}
	var order []int
	if r.IntN(3) == 0 {
		order = r.Perm(rank)
	}
	return s.MarkCompactShapeDynamic(r.IntN(rank+1), order, int64(1+r.IntN(3)))
}

// offsets lists the offset of every element in the order of its index.
func offsets(s *Spec) []int64 {
	shape := s.Shape()
	index := make([]int64, len(shape))
	var all []int64
	for {
		all = append(all, s.Offset(index...))
		mode := len(shape) - 1
		for ; mode >= 0; mode-- {
			if index[mode]++; index[mode] < shape[mode] {
				break
			}
			index[mode] = 0
		}
		if mode < 0 {
			return all
		}
	}
}

// TestMarksKeepAddresses: after any marks, every index maps to the same element, extents stay, static
// parts print their values, and divisors divide.
func TestMarksKeepAddresses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	took := 0
	for range 5000 {
		o := Options{
			Leading:     LeadingRule(r.IntN(2)),
			Strides:     StrideWidth(r.IntN(3)),
			UnitStrides: r.IntN(4) == 0,
		}
		v := randomView(r)
		s := testenv.Must(NewSpec(v, o))(t)
		shape, want := s.Shape(), offsets(&s)
		for range 1 + r.IntN(3) {
			before := s
			if randomMark(r, &s) != nil {
				require.Equal(t, before, s, "a failed mark changed %v", v)
				continue
			}
			took++
			require.Equal(t, shape, s.Shape())
			require.Equal(t, want, offsets(&s), "%v is now %s", v, s.Layout())
			requireDivisible(t, &s)
		}
	}
	require.Greater(t, took, 1250, "too few marks took effect to show anything")
}

func requireDivisible(t *testing.T, s *Spec) {
	t.Helper()
	for mode, e := range s.Shape() {
		if div := s.DynamicShape(mode); div > 0 {
			require.Zero(t, e%div, s.Layout())
		}
	}
	for mode, stride := range s.Stride() {
		if div := s.DynamicStride(mode); div > 0 {
			require.Zero(t, stride%div, s.Layout())
		}
	}
}

// TestUnitStrides: canonical strides of size-1 modes change no address.
func TestUnitStrides(t *testing.T) {
	v := dlpack.View{Shape: []int64{1, 4, 1, 32, 1}, Strides: []int64{4, 1, 4, 4, 4}}
	require.Equal(t, "(1,4,1,32,1):(4,1,4,4,4)", ptr(specOf(t, v, Options{})).Layout())
	require.Equal(t, "(1,4,1,32,1):(1,1,1,4,1)", ptr(specOf(t, v, Options{UnitStrides: true})).Layout())
}

func ptr[T any](v T) *T { return &v }

// TestCopiesAreIndependent: marking a copy leaves the original, at every rank.
func TestCopiesAreIndependent(t *testing.T) {
	for _, rank := range []int{1, 8, 9, 64} {
		s := specOf(t, wideView(rank), Options{})
		before := s.Layout()
		c := s
		require.NoError(t, c.MarkLayoutDynamic(rank-1))
		require.Equal(t, before, s.Layout())
		require.NotEqual(t, before, c.Layout())
	}
}

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		shape, strides []int64
		span           int64
	}{
		{nil, nil, 1},
		{[]int64{30, 20}, nil, 600},
		{[]int64{3, 4}, []int64{8, 2}, 23},
		{[]int64{3, 4}, []int64{-8, 2}, 23},
		{[]int64{3, 0, 4}, nil, 0},
		{[]int64{5}, []int64{0}, 1},
		{[]int64{1}, []int64{math.MinInt64}, 1},
		{[]int64{math.MaxInt64}, []int64{1}, math.MaxInt64},
	} {
		s := specOf(t, dlpack.View{Shape: c.shape, Strides: c.strides}, Options{})
		require.Equal(t, c.span, s.Span(), "%v:%v", c.shape, c.strides)
	}
}

// TestNarrowStrides: 32-bit strides are refused only if they could overflow.
func TestNarrowStrides(t *testing.T) {
	for _, c := range []struct {
		name           string
		shape, strides []int64
		fits           bool
	}{
		{"largest", []int64{1<<31 - 1}, []int64{1}, true},
		{"one more", []int64{1 << 31}, []int64{1}, false},
		{"strides fit, offsets do not", []int64{1 << 20, 1 << 12}, []int64{1 << 12, 1}, false},
		{"backwards", []int64{2, 2}, []int64{-(1<<31 - 3), 1}, true},
		{"too far backwards", []int64{2, 2}, []int64{-(1<<31 - 2), 1}, false},
		{"a stride nothing is multiplied with", []int64{1, 2}, []int64{1 << 31, 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := specOf(t, dlpack.View{Shape: c.shape, Strides: c.strides}, Options{Strides: Strides32})
			err := s.MarkLayoutDynamic(Deduce)
			if c.fits {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, ErrStride32)
			}
			s = specOf(t, dlpack.View{Shape: c.shape, Strides: c.strides}, Options{Strides: Strides64})
			require.NoError(t, s.MarkLayoutDynamic(Deduce))
		})
	}
}
