package oip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

// Names, sizes and array types of all datatypes agree with each other.
func TestDatatypes(t *testing.T) {
	seen := 0
	for d := BOOL; d <= BYTES; d++ {
		back, err := Parse(d.String())
		require.NoError(t, err)
		require.Equal(t, d, back)
		text, err := json.Marshal(d)
		require.NoError(t, err)
		require.Equal(t, `"`+d.String()+`"`, string(text))
		seen++
		dt, err := d.DType()
		if d == BYTES {
			require.Equal(t, Unsupported, As(err).Kind)
			require.Zero(t, d.Size())
			continue
		}
		require.NoError(t, err)
		require.Equal(t, d.Size()*8, dt.BitSize(), d)
	}
	require.Equal(t, 14, seen)
	for _, bad := range []string{"", "fp32", "FP32 ", "STRING", strings.Repeat("x", 1<<20), "\x00"} {
		_, err := Parse(bad)
		require.Equal(t, Invalid, As(err).Kind)
		require.Less(t, len(err.Error()), 400)
	}
	var none Datatype
	require.Equal(t, "invalid", none.String())
	require.Zero(t, none.Size())
	_, err := none.DType()
	require.Error(t, err)
	require.NoError(t, json.Unmarshal([]byte(`"FP16"`), &none))
	require.Equal(t, FP16, none)
	require.Error(t, json.Unmarshal([]byte(`"FP8"`), &none))
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		d     Datatype
		shape []int64
		bytes uint64
		kind  Kind
	}{
		{FP32, nil, 4, 0},
		{FP32, []int64{2, 3}, 24, 0},
		{UINT8, []int64{0, math.MaxInt64}, 0, 0},
		{UINT8, []int64{math.MaxInt64}, math.MaxInt64, 0},
		{UINT16, []int64{math.MaxInt64}, 0, TooLarge},
		{UINT8, []int64{1 << 32, 1 << 32}, 0, TooLarge},
		{UINT8, []int64{0, 1 << 32, 1 << 32}, 0, TooLarge},
		{UINT8, []int64{-1}, 0, Invalid},
		{UINT8, []int64{0, math.MinInt64}, 0, Invalid},
		{UINT8, make([]int64, MaxRank+1), 0, Invalid},
		{UINT8, make([]int64, MaxRank), 0, 0},
		{BYTES, []int64{1}, 0, Unsupported},
	} {
		n, err := Bytes(c.d, c.shape)
		if c.kind != 0 {
			require.Equal(t, c.kind, As(err).Kind, "%v %v", c.d, c.shape)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.bytes, n, "%v %v", c.d, c.shape)
	}
}

// FuzzBytes checks that Bytes detects overflow independently of the order of the extents, and
// returns the product otherwise.
func FuzzBytes(f *testing.F) {
	f.Add(int64(1), int64(2), int64(3))
	f.Add(int64(math.MaxInt64), int64(2), int64(0))
	f.Add(int64(1<<31), int64(1<<31), int64(4))
	f.Fuzz(func(t *testing.T, a, b, c int64) {
		n, err := Bytes(UINT8, []int64{a, b, c})
		m, err2 := Bytes(UINT8, []int64{c, a, b})
		require.Equal(t, err == nil, err2 == nil)
		require.Equal(t, n, m)
		if err != nil {
			return
		}
		require.LessOrEqual(t, n, uint64(math.MaxInt64))
		require.Equal(t, uint64(a)*uint64(b)*uint64(c), n)
	})
}

func TestFits(t *testing.T) {
	x := Tensor{Name: "x", Datatype: FP32, Shape: []int64{-1, 3}}
	require.True(t, x.Fits([]int64{0, 3}))
	require.True(t, x.Fits([]int64{7, 3}))
	require.False(t, x.Fits([]int64{7, 4}))
	require.False(t, x.Fits([]int64{3}))
	require.False(t, x.Fits(nil))
}

func TestErrors(t *testing.T) {
	for k := Internal; k <= InUse; k++ {
		require.GreaterOrEqual(t, k.HTTP(), 400)
		require.NotEqual(t, codes.OK, k.GRPC())
		require.NotEmpty(t, k.String())
	}
	secret := errors.New("open /var/lib/secret: 0xc000123")
	e := As(fmt.Errorf("reading: %w", secret))
	require.Equal(t, Internal, e.Kind)
	require.NotContains(t, e.Message, "secret")
	require.ErrorIs(t, e, secret)
	require.Contains(t, e.Error(), "secret", "for the log")
	require.Equal(t, Deadline, As(fmt.Errorf("a: %w", context.DeadlineExceeded)).Kind)
	require.Equal(t, Cancelled, As(context.Canceled).Kind)
	own := Errorf(Busy, "later")
	require.Same(t, own, As(fmt.Errorf("a: %w", own)))
}

func TestQuote(t *testing.T) {
	require.Equal(t, `"a"`, Quote("a"))
	require.Equal(t, `"\n\x00"`, Quote("\n\x00"))
	require.Less(t, len(Quote(strings.Repeat("\u2028", 1<<16))), 500)
}
