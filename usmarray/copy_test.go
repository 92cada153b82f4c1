package usmarray

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
)

// elements lists an array's elements in C order through At, one by one: the
// model that bulk operations are compared with.
func elements(t testing.TB, a *Array) []any {
	t.Helper()
	out := make([]any, 0, a.Size())
	index := make([]int, a.NDim())
	for range a.Size() {
		out = append(out, testenv.Must(a.At(index...))(t))
		for k := len(index) - 1; k >= 0; k-- {
			if index[k]++; index[k] < a.Shape()[k] {
				break
			}
			index[k] = 0
		}
	}
	return out
}

// shuffled returns a random view of shape (4,3,5).
func shuffled(t testing.TB, r *rand.Rand, mem memmgr.Resource) *Array {
	t.Helper()
	base := testenv.Held(Arange[int32](mem, int32(r.IntN(1000)), 1, 16*6*20))(t)
	m := testenv.Must(base.Reshape(16, 6, 20))(t)
	switch r.IntN(5) {
	case 0:
		return testenv.Must(m.Index(IndexRange(0, 4), IndexRange(0, 3), IndexRange(0, 5)))(t)
	case 1:
		return testenv.Must(m.Index(All.By(-4), All.By(2), IndexRange(18, 8).By(-2)))(t)
	case 2:
		f := testenv.Must(testenv.Must(base.Index(IndexTo(60)))(t).Reshape(5, 3, 4))(t)
		return testenv.Must(f.Transpose())(t)
	case 3:
		return testenv.Must(testenv.Must(base.Index(IndexRange(7, 67)))(t).Reshape(4, 3, 5))(t)
	}
	return testenv.Must(testenv.Must(m.Index(IndexRange(3, 7), IndexAt(0), IndexRange(5, 20).By(3)))(t).Index(All, NewAxis, All.By(-1)))(t).repeat(t, 3)
}

// repeat broadcasts the middle axis and makes the result writable storage.
func (a *Array) repeat(t testing.TB, n int) *Array {
	t.Helper()
	b := testenv.Must(a.Broadcast(4, n, 5))(t)
	return testenv.Held(b.Copy(memmgr.Host()))(t)
}

func TestCopyBetweenAllMemories(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	all := backends(t)
	for _, from := range all {
		for _, to := range all {
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				for range 12 {
					src, dst := shuffled(t, r, from.r), shuffled(t, r, to.r)
					require.Equal(t, []int{4, 3, 5}, dst.Shape())
					want := elements(t, src)
					require.NoError(t, dst.CopyFrom(src))
					require.NoError(t, dst.Wait())
					require.Equal(t, want, elements(t, dst))
					c := testenv.Held(src.Copy(to.r))(t)
					require.Equal(t, want, elements(t, c))
					require.Equal(t, want, anys(testenv.Must(ToSlice[int32](c))(t)))
				}
			})
		}
	}
}

func anys[T any](v []T) []any {
	out := make([]any, len(v))
	for i, x := range v {
		out[i] = x
	}
	return out
}

// TestCopyLeavesGapsAlone: memory between the elements of a strided destination is unchanged, for all kinds
// of copies.
func TestCopyLeavesGapsAlone(t *testing.T) {
	for _, b := range backends(t) {
		for _, n := range []int{10, 4000} {
			t.Run(fmt.Sprint(b.name, n), func(t *testing.T) {
				a := testenv.Held(Arange[int64](b.r, 0, 1, 2*n))(t)
				even := testenv.Must(a.Index(All.By(2)))(t)
				require.NoError(t, even.CopyFrom(testenv.Held(Full(memmgr.Host(), Int64, []int{n}, -1))(t)))
				got := testenv.Must(ToSlice[int64](a))(t)
				for i, v := range got {
					want := int64(-1)
					if i%2 == 1 {
						want = int64(i)
					}
					require.Equal(t, want, v)
				}
				require.NoError(t, testenv.Must(a.Index(IndexFrom(1).By(2)))(t).Fill(7))
				got = testenv.Must(ToSlice[int64](a))(t)
				require.Equal(t, []int64{-1, 7, -1, 7}, got[:4])
				require.Equal(t, int64(7), got[2*n-1])
			})
		}
	}
}

func TestCopyOverlap(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			a := testenv.Held(Arange[int32](b.r, 0, 1, 10))(t)
			require.NoError(t, testenv.Must(a.Index(IndexFrom(1)))(t).CopyFrom(testenv.Must(a.Index(IndexTo(-1)))(t)))
			require.Equal(t, "[0 0 1 2 3 4 5 6 7 8]", a.String())
			require.NoError(t, a.CopyFrom(testenv.Must(a.Index(All.By(-1)))(t)))
			require.Equal(t, "[8 7 6 5 4 3 2 1 0 0]", a.String())
			m := testenv.Must(testenv.Must(a.Index(IndexTo(9)))(t).Reshape(3, 3))(t)
			require.NoError(t, m.CopyFrom(testenv.Must(m.Transpose())(t)))
			require.Equal(t, "[[8 5 2]\n [7 4 1]\n [6 3 0]]", m.String())
		})
	}
}

func TestCopyBroadcasts(t *testing.T) {
	a := testenv.Held(Zeros(memmgr.Host(), Float32, []int{2, 3}))(t)
	require.NoError(t, a.CopyFrom(testenv.Held(FromSlice(memmgr.Host(), []float32{1, 2, 3}, nil))(t)))
	require.Equal(t, "[[1. 2. 3.]\n [1. 2. 3.]]", a.String())
}

// TestMoreElementsThanMemory: a broadcast view may have more elements than memory has bytes.
func TestMoreElementsThanMemory(t *testing.T) {
	one := testenv.Held(FromSlice(memmgr.Host(), []float32{7}, nil))(t)
	require.ErrorIs(t, testenv.ErrorOf(one.Broadcast(1<<31, 1<<31)), ErrLayout)
	many := testenv.Held(one.Broadcast(1<<31, 1<<20))(t)
	require.Equal(t, 1<<53, many.NBytes())
	require.ErrorIs(t, testenv.ErrorOf(ToSlice[float32](many)), ErrLayout)
	require.EqualValues(t, 7, testenv.Must(many.At(1<<31-1, -1))(t))
}

func TestToDevice(t *testing.T) {
	_, q := testsycl.Need(t)
	dev, shared := testsycl.USM(t, q, 1), testsycl.USM(t, q, 2)
	a := testenv.Held(Arange[float32](memmgr.Host(), 0, 1, 100))(t)
	d := testenv.Held(a.ToDevice(dev))(t)
	require.NotEqual(t, addressOf(a), addressOf(d))
	require.Equal(t, addressOf(d), addressOf(testenv.Held(d.ToDevice(dev))(t)))
	s := testenv.Held(d.ToDevice(shared))(t)
	back := testenv.Held(s.ToDevice(memmgr.Host()))(t)
	require.Equal(t, elements(t, a), elements(t, back))
	require.True(t, back.Place().IsHost())
}

// TestBroadcastRowsOfAllSizes fills rows with one element, for all sizes of elements and lengths around that
// of one copy, and checks that nothing else is written.
func TestBroadcastRowsOfAllSizes(t *testing.T) {
	for _, dt := range []DataType{Uint8, Float16, Int32, Complex64, Complex128} {
		size := int(dt.Bits) / 8
		for _, n := range []int{1, 2, 3, 5, 4096/size - 1, 4096 / size, 4096/size + 1, 3*4096/size + 7} {
			a := testenv.Held(Zeros(memmgr.Host(), dt, []int{n + 2}))(t)
			one := testenv.Held(Zeros(memmgr.Host(), dt, []int{1}))(t)
			raw := testenv.Must(one.Buffer().Bytes())(t)
			for i := range size {
				raw[i] = byte(i + 1)
			}
			require.NoError(t, testenv.Must(a.Index(IndexRange(1, n+1)))(t).CopyFrom(one))
			beside := make([]byte, size)
			want := bytes.Join([][]byte{beside, bytes.Repeat(raw[:size], n), beside}, nil)
			require.Equal(t, want, testenv.Must(a.Buffer().Bytes())(t)[:len(want)], "%v x %d", dt, n)
		}
	}
}

// TestZerosOfMemoryThatWasUsed: Zeros clears reused memory of a pool.
func TestZerosOfMemoryThatWasUsed(t *testing.T) {
	pool := memmgr.NewPool(memmgr.Host())
	defer func() { require.NoError(t, pool.Close()) }()
	for _, n := range []int{1, 999, 1 << 20} {
		again := 0
		for range 20 {
			used := testenv.Must(Full(pool, Uint8, []int{n}, 7))(t)
			at := used.base()
			used.Release()
			zeros := testenv.Must(Zeros(pool, Uint8, []int{n}))(t)
			if zeros.base() == at {
				again++
			}
			for _, v := range testenv.Must(Slice[uint8](zeros))(t) {
				if v != 0 {
					t.Fatalf("%d bytes: %d is left over", n, v)
				}
			}
			zeros.Release()
		}
		require.Positive(t, again, "the pool gives what was given back")
	}
}
