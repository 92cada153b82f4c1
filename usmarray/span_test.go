package usmarray

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
)

// exactSpan is the memory of a shape and strides in unbounded numbers: the number of elements (without
// empty axes), and the first and the last element relative to element (0, …, 0).
type exactSpan struct {
	count, lo, hi  *big.Int
	empty, c, f    bool
	negativeExtent bool
	lowest         bool // an axis with the lowest int as its stride
}

func exact(shape, strides []int) exactSpan {
	s := exactSpan{count: big.NewInt(1), lo: new(big.Int), hi: new(big.Int), c: true, f: true}
	for i, d := range shape {
		switch {
		case d < 0:
			s.negativeExtent = true
		case d == 0:
			s.empty = true
		default:
			s.count.Mul(s.count, big.NewInt(int64(d)))
			step := new(big.Int).Mul(big.NewInt(int64(d-1)), big.NewInt(int64(strides[i])))
			s.lowest = s.lowest || step.IsInt64() && step.Int64() == math.MinInt64
			if step.Sign() < 0 {
				s.lo.Add(s.lo, step)
			} else {
				s.hi.Add(s.hi, step)
			}
		}
	}
	dense := func(axis, step int) bool {
		want := big.NewInt(1)
		for range shape {
			if d := shape[axis]; d != 1 {
				if want.Cmp(big.NewInt(int64(strides[axis]))) != 0 {
					return false
				}
				want.Mul(want, big.NewInt(int64(d)))
			}
			axis += step
		}
		return true
	}
	if s.empty {
		s.lo, s.hi, s.lowest = new(big.Int), big.NewInt(-1), false
		return s
	}
	s.c, s.f = dense(len(shape)-1, -1), dense(0, 1)
	return s
}

// scaled returns (x + plus) * factor.
func scaled(x *big.Int, plus, factor int64) *big.Int {
	y := new(big.Int).Add(x, big.NewInt(plus))
	return y.Mul(y, big.NewInt(factor))
}

// fits reports whether numbers fit an int64.
func fits(numbers ...*big.Int) bool {
	for _, n := range numbers {
		if !n.IsInt64() {
			return false
		}
	}
	return true
}

// spanNumbers converts bytes to a shape and strides, with frequent limits of int, unit extents with huge
// strides, and contiguous axes.
func spanNumbers(raw []byte) (shape, strides []int) {
	extents := []int{0, 1, 1, 1, 2, 3, 4, 7, 1 << 20, 1 << 31, 1 << 62, maxInt, -1}
	steps := []int{0, 1, -1, 2, -3, 5, 1 << 20, -(1 << 31), 1 << 38, 1 << 61, 1 << 62, -(1 << 62), maxInt, minInt}
	dense := 1
	for ; len(raw) >= 2 && len(shape) < 6; raw = raw[2:] {
		d := extents[int(raw[0])%len(extents)]
		s := dense
		if raw[1] < 128 {
			s = steps[int(raw[1])%len(steps)]
		}
		shape, strides = append([]int{d}, shape...), append([]int{s}, strides...)
		dense *= max(d, 1)
	}
	return shape, strides
}

// FuzzSpan compares the span and the order of elements, as Layout, the dictionary and the C code of
// package dlpack compute them, with exact arithmetic: each accepts exactly the values that it can
// represent, and computes the same span.
func FuzzSpan(f *testing.F) {
	if intBits != 64 {
		f.Skip("the limits are those of 64 bits")
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		raw := make([]byte, 2*r.IntN(6))
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		shape, strides := spanNumbers(raw)
		want := exact(shape, strides)
		possible := !want.negativeExtent && fits(want.count)
		requireLayoutSpan(t, shape, strides, want, possible)
		requireDictionary(t, &USMInterface{Shape: shape, Strides: append([]int{}, strides...), TypeStr: "<f4", Data: spanData, Version: 1})
		if dlpack.Supported() {
			requireTensorSpan(t, shape, strides, want, possible)
		}
	})
}

func requireLayoutSpan(t *testing.T, shape, strides []int, want exactSpan, possible bool) {
	t.Helper()
	l, err := NewLayout(shape, strides, 0)
	if !possible || !fits(want.lo, scaled(want.hi, 1, 1)) || want.lowest {
		require.ErrorIs(t, err, ErrLayout, "%v %v", shape, strides)
		return
	}
	require.NoError(t, err)
	lo, hi := l.bounds()
	require.Equal(t, want.lo.Int64(), int64(lo), "%v", l)
	require.Equal(t, want.hi.Int64()+1, int64(hi), "%v", l)
	require.Equal(t, want.c, l.isC(), "%v", l)
	require.Equal(t, want.f, l.isF(), "%v", l)

	// Views stay within the span.
	items := make([]Index, len(shape))
	for i := range items {
		items[i] = All.By(-1 - i)
	}
	for _, view := range []func() (Layout, error){
		func() (Layout, error) { return l.transpose() },
		func() (Layout, error) { return l.index(items...) },
		func() (Layout, error) { return l.broadcast(append([]int{1}, shape...)...) },
		func() (Layout, error) { return l.reshape(l.Size()) },
		func() (Layout, error) { return l.reshape(1, l.Size(), 1) },
	} {
		v, err := view()
		if err != nil {
			continue
		}
		require.NoError(t, v.check(), "%v of %v", v, l)
		a, b := v.bounds()
		require.True(t, a == b || lo <= a && b <= hi, "%v of %v", v, l)
	}
}

// spanData is the address of the first element, far from both ends of the address space.
const spanData = 1 << 40

func requireTensorSpan(t *testing.T, shape, strides []int, want exactSpan, possible bool) {
	t.Helper()
	// The C code counts bits in 63-bit numbers, and does not access the tensor's memory.
	v := dlpack.View{Data: pointerAt(spanData), Device: dlpack.CPU, DataType: Float32, Shape: int64s(shape), Strides: int64s(strides)}
	if v.Strides == nil {
		v.Strides = []int64{}
	}
	s, err := dlpack.Check(&v, 0)
	low, high := scaled(want.lo, 0, 32), scaled(want.hi, 1, 32)
	if !possible || !fits(scaled(want.count, 0, 32), low, high) || low.Int64()/8 < -spanData {
		require.Error(t, err, "%v %v", shape, strides)
		return
	}
	require.NoError(t, err, "%v %v", shape, strides)
	require.Equal(t, low.Int64()/8, s.Lo, "%v %v", shape, strides)
	require.Equal(t, high.Int64()/8, s.Hi, "%v %v", shape, strides)
}
