package usmarray

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

func TestCreate(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			z := testenv.Held(Zeros(b.r, Float32, []int{3, 4}))(t)
			require.Equal(t, "[[0. 0. 0. 0.]\n [0. 0. 0. 0.]\n [0. 0. 0. 0.]]", z.String())
			require.Equal(t, 48, z.NBytes())
			require.Zero(t, addressOf(z)%256)
			f := testenv.Held(Full(b.r, Int16, []int{2, 2}, -7, FortranOrder()))(t)
			require.Equal(t, "[[-7 -7]\n [-7 -7]]", f.String())
			require.True(t, f.IsF())
			r := testenv.Held(Arange[complex64](b.r, 1+1i, 2-1i, 3))(t)
			require.Equal(t, []complex64{1 + 1i, 3, 5 - 1i}, testenv.Must(ToSlice[complex64](r))(t))
			s := testenv.Held(FromSlice(b.r, []float64{1, 2.5, 3, 4, 5, 6}, []int{2, 3}))(t)
			require.Equal(t, "[[1.  2.5 3. ]\n [4.  5.  6. ]]", s.String())
			e := testenv.Held(Zeros(b.r, Uint8, []int{0, 5}))(t)
			require.Equal(t, "[]", e.String())
			require.NoError(t, e.Fill(3))
			c := testenv.Held(Full(b.r, Bool, nil, true))(t)
			require.Equal(t, "True", c.String())
			require.Equal(t, true, testenv.Must(c.At())(t))
		})
	}
}

// TestCreateWaitsWithAContext: with a context, an allocation waits for memory until the context ends.
func TestCreateWaitsWithAContext(t *testing.T) {
	p := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(4<<20))
	held := testenv.Must(New(p, Uint8, []int{3 << 20}))(t)
	require.ErrorIs(t, testenv.ErrorOf(New(p, Uint8, []int{2 << 20})), memmgr.ErrOutOfMemory, "without a context no request waits")
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := Zeros(memmgr.Waiting(ctx, p), Uint8, []int{2 << 20})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a, err := New(memmgr.Waiting(context.Background(), p), Uint8, []int{2 << 20})
		if err != nil {
			t.Error(err)
			return
		}
		a.Release()
	}()
	require.Eventually(t, func() bool { return p.Stats().NumWaiting == 1 }, time.Minute, time.Millisecond)
	held.Release()
	<-done
	require.NoError(t, p.Close())
}

func TestOwnership(t *testing.T) {
	a := testenv.Must(FromSlice(memmgr.Host(), []int32{1, 2, 3, 4}, nil))(t)
	v := testenv.Must(a.Index(IndexFrom(2)))(t)
	require.False(t, owns(v))
	k := v.Retain()
	require.True(t, owns(k))
	a.Release()
	a.Release() // idempotent
	require.False(t, a.Valid())
	require.True(t, v.Valid())
	require.Equal(t, "[3 4]", v.String())
	require.PanicsWithError(t, "usmarray: Array.Place: the array was released", func() { a.Place() })
	v.Release() // borrowed: drops no reference
	require.True(t, k.Valid())
	require.Equal(t, "[3 4]", k.String())
	w := testenv.Must(k.Transpose())(t)
	k.Release()
	require.False(t, w.Valid())
	require.Equal(t, "<released array>", w.String())
	require.PanicsWithError(t, "usmarray: Array.Retain: the memory's last owner was released; use Retain to keep the memory of a view", func() { w.Retain() })
}

func TestViewsShareMemory(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			a := testenv.Held(Arange[int32](b.r, 0, 1, 24))(t)
			m := testenv.Must(a.Reshape(2, 3, 4))(t)
			v := testenv.Must(m.Index(IndexAt(1), All.By(-1), IndexRange(1, 3)))(t)
			require.Equal(t, "[[21 22]\n [17 18]\n [13 14]]", v.String())
			require.NoError(t, v.SetAt(-5, 0, -1))
			require.Equal(t, int32(-5), testenv.Must(a.At(22))(t))
			require.Equal(t, addressOf(a)+21*4, addressOf(v))
			require.NoError(t, v.Fill(9))
			require.Equal(t, "[12  9  9 15 16  9  9 19 20  9  9 23]", testenv.Must(a.Index(IndexFrom(12)))(t).String())
			tr := testenv.Must(m.Transpose(2, 0, 1))(t)
			require.Equal(t, []int{4, 2, 3}, tr.Shape())
			require.Equal(t, []int{1, 12, 4}, tr.Strides())
			bc := testenv.Must(testenv.Must(a.Index(IndexTo(3)))(t).Broadcast(2, 3))(t)
			require.Equal(t, "[[0 1 2]\n [0 1 2]]", bc.String())
			require.ErrorIs(t, bc.Fill(1), ErrReadOnly)
		})
	}
}

func TestReadOnly(t *testing.T) {
	a := testenv.Held(Zeros(memmgr.Host(), Float32, []int{4}))(t)
	ro := a.AsReadOnly()
	v := testenv.Must(ro.Index(IndexFrom(1)))(t)
	for _, x := range []*Array{ro, v, v.Retain()} {
		require.True(t, x.ReadOnly())
		require.ErrorIs(t, x.Fill(1), ErrReadOnly)
		require.ErrorIs(t, x.SetAt(1, 0), ErrReadOnly)
		require.ErrorIs(t, x.CopyFrom(a), ErrReadOnly)
		require.ErrorIs(t, CopyFromSlice(x, []float32{1}), ErrReadOnly)
		require.ErrorIs(t, View(x, func([]float32) error { return nil }), ErrReadOnly)
		require.NoError(t, ReadView(x, func([]float32) error { return nil }))
		if owns(x) {
			x.Release()
		}
	}
	require.False(t, a.ReadOnly())
	a.Buffer().SetReadOnly()
	require.ErrorIs(t, a.Fill(1), ErrReadOnly)
}

func TestSliceAndView(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			a := testenv.Held(FromSlice(b.r, []float32{1, 2, 3, 4}, []int{2, 2}))(t)
			if b.name == "device" {
				require.ErrorIs(t, testenv.ErrorOf(Slice[float32](a)), ErrNotHostReadable)
				return
			}
			s := testenv.Must(Slice[float32](a))(t)
			require.Equal(t, []float32{1, 2, 3, 4}, s)
			s[3] = 8
			require.Equal(t, float32(8), testenv.Must(a.At(1, 1))(t))
			boom := errors.New("boom")
			require.Equal(t, boom, View(a, func(v []float32) error {
				v[0] = 5
				return boom
			}))
			require.Equal(t, float32(5), testenv.Must(a.At(0, 0))(t))
		})
	}
}

func TestAtSetAt(t *testing.T) {
	r := memmgr.Host()
	for _, dt := range dlpack.DataTypes() {
		for _, padded := range []bool{false, true} {
			var opts []Option
			if padded {
				opts = append(opts, Padded())
			}
			a := testenv.Held(Zeros(r, dt, []int{5}, opts...))(t)
			one := 1
			if dt == dlpack.Int1 {
				one = -1 // the only number except 0
			}
			require.NoError(t, a.SetAt(one, 3), dt)
			require.NoError(t, a.SetAt(one, -5), dt)
			for i, want := range []float64{1, 0, 0, 1, 0} {
				if dt == dlpack.Float8E8M0FNU && want == 0 {
					want = math.Ldexp(1, -127) // the type has no zero
				}
				e, _, err := elementOf(testenv.Must(a.At(i))(t))
				require.NoError(t, err)
				got := e.re + float64(int64(e.bits)) // one of the two is 0
				want *= float64(one)
				require.Equal(t, want, got, "%v %d", dt, i)
			}
		}
	}
	a := testenv.Held(Zeros(r, Uint8, []int{2}))(t)
	for _, v := range []any{-1, 256, 1.5, math.NaN(), "x", 1i, nil, int64(1) << 40} {
		require.ErrorIs(t, a.SetAt(v, 0), ErrType, "%v", v)
	}
	require.NoError(t, a.SetAt(complex(255, 0), 0))
	require.ErrorIs(t, a.SetAt(1, 2), ErrIndex)
	require.ErrorIs(t, testenv.ErrorOf(a.At(0, 0)), ErrLayout)
	bo := testenv.Held(Zeros(r, Bool, []int{2}))(t)
	require.NoError(t, bo.SetAt(1.0, 0))
	require.ErrorIs(t, bo.SetAt(2, 0), ErrType)
	u := testenv.Held(Zeros(r, Uint64, []int{1}))(t)
	require.NoError(t, u.SetAt(uint64(math.MaxUint64), 0))
	require.ErrorIs(t, u.SetAt(math.Ldexp(1, 64), 0), ErrType)
}

// TestOddIntegers: integers of sizes that dlpack's Check refuses are not element types.
func TestOddIntegers(t *testing.T) {
	for _, dt := range []DataType{
		{Code: dlpack.CodeInt, Lanes: 1},
		{Code: dlpack.CodeUInt, Lanes: 1},
		{Code: dlpack.CodeInt, Bits: 12, Lanes: 1},
		{Code: dlpack.CodeUInt, Bits: 24, Lanes: 1},
		{Code: dlpack.CodeInt, Bits: 63, Lanes: 1},
	} {
		require.ErrorIs(t, testenv.ErrorOf(New(memmgr.Host(), dt, []int{8})), ErrType, "%v", dt)
	}
	for bits := uint8(1); bits <= 64; bits *= 2 {
		testenv.Must(New(memmgr.Host(), DataType{Code: dlpack.CodeInt, Bits: bits, Lanes: 1}, []int{8}))(t).Release()
	}
}
