package usmarray

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestFromDLPackTakesOnce: a tensor can be taken over once, also while the resulting array exists.
func TestFromDLPackTakesOnce(t *testing.T) {
	needDLPack(t)
	rt := testsycl.Runtime(t)
	a := testenv.Held(Zeros(memmgr.Host(), Float32, []int{4}))(t)
	x := testenv.Must(a.DLPack())(t)
	b := testenv.Held(FromDLPack(rt, x))(t)
	require.False(t, x.Valid(), "the array owns the tensor")
	testenv.Failed(t, testenv.ErrorOf(FromDLPack(rt, x)), ErrExchange, "taken over")
	x.Release() // no effect: it was taken over
	require.Equal(t, 2, a.Buffer().Count())
	require.Equal(t, float32(0), testenv.Must(b.At(3))(t))
}

// TestFromDLPackRace: if several goroutines take over one tensor, one succeeds, and the owner is released
// once.
func TestFromDLPackRace(t *testing.T) {
	needDLPack(t)
	rt := testsycl.Runtime(t)
	a := testenv.Held(Zeros(memmgr.Host(), Float32, []int{4}))(t)
	for range 200 {
		x := testenv.Must(a.DLPack())(t)
		var won atomic.Int32
		testenv.Together(t, 3, func(int) error {
			if b, err := FromDLPack(rt, x); err == nil {
				won.Add(1)
				b.Release()
			}
			return nil
		})
		require.Equal(t, int32(1), won.Load())
		eventually(t, func() bool { return a.Buffer().Count() == 1 })
	}
}

// TestCopiedIsForTheConsumerAlone: IS_COPIED means that only the consumer holds the memory, so a copy that
// the user made and keeps does not have it.
func TestCopiedIsForTheConsumerAlone(t *testing.T) {
	needDLPack(t)
	a := testenv.Held(Zeros(memmgr.Host(), Float32, []int{4}))(t)
	c := testenv.Held(a.Copy(memmgr.Host()))(t)
	x := testenv.Must(c.DLPack())(t)
	require.Zero(t, x.Flags()&dlpack.IsCopied)
	x.Release()
	x = testenv.Must(c.DLPackWith(ExportOptions{Copy: CopyAlways}))(t)
	require.Equal(t, dlpack.IsCopied, x.Flags())
	require.NotEqual(t, addressOf(c), uintptr(x.Data()))
	x.Release()
}

// TestInterfaceOfUnknownSize: the dictionary of memory of unknown size has no Allocation.
func TestInterfaceOfUnknownSize(t *testing.T) {
	rt, q := testsycl.Need(t)
	a := testenv.Held(Arange[float32](testsycl.USM(t, q, syclobj.USMShared), 0, 1, 4))(t)
	buf := testenv.Must(memmgr.FromForeign(a.Pointer(), memmgr.UnknownSize, memmgr.ForeignOptions{Place: a.Place()}))(t)
	b := testenv.Held(FromBuffer(buf, Float32, mustLayout(t, []int{4}, nil, 0)))(t)
	d := testenv.Must(b.USMInterface())(t)
	require.Zero(t, d.Allocation)
	require.Equal(t, "[0. 1. 2. 3.]", testenv.Held(FromUSMInterface(rt, &d, nil))(t).String())
	require.Equal(t, "[0. 1. 2. 3.]", testenv.Held(FromDLPack(rt, testenv.Must(b.DLPack())(t)))(t).String())
}

// TestExchangeOfNewEmpty: arrays without elements have an address too.
func TestExchangeOfNewEmpty(t *testing.T) {
	rt, q := testsycl.Need(t)
	for _, k := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost} {
		for _, shape := range [][]int{{0}, {3, 0, 2}} {
			a := testenv.Held(Zeros(testsycl.USM(t, q, k), Float32, shape))(t)
			d := testenv.Must(a.USMInterface())(t)
			require.NotZero(t, d.Data)
			require.Equal(t, shape, testenv.Held(FromUSMInterface(rt, &d, nil))(t).Shape())
			x := testenv.Must(a.DLPack())(t)
			require.NotNil(t, x.Data())
			require.Equal(t, shape, testenv.Held(FromDLPack(rt, x))(t).Shape())
		}
	}
}

// TestCopyPackedThroughTwoBuffers: two buffers of the same memory overlap for packed elements too.
func TestCopyPackedThroughTwoBuffers(t *testing.T) {
	base := testenv.Held(New(memmgr.Host(), dlpack.Uint4, []int{16}))(t)
	for i := range 16 {
		require.NoError(t, base.SetAt(i, i))
	}
	buf := testenv.Must(memmgr.FromForeign(base.Pointer(), 8, memmgr.ForeignOptions{}))(t)
	other := testenv.Held(FromBuffer(buf, dlpack.Uint4, mustLayout(t, []int{16}, nil, 0)))(t)
	dst := testenv.Must(base.Index(IndexFrom(1)))(t)
	require.NoError(t, dst.CopyFrom(testenv.Must(other.Index(IndexTo(15)))(t)))
	require.Equal(t, "[ 0  0  1  2  3  4  5  6  7  8  9 10 11 12 13 14]", base.String())
}

// TestReleaseInAnyOrder: the holders of one memory release it in any order, and its owner is released
// once, after the last.
func TestReleaseInAnyOrder(t *testing.T) {
	rt, q := testsycl.Need(t)
	a := testenv.Held(Arange[int32](testsycl.USM(t, q, syclobj.USMShared), 0, 1, 8))(t)
	for _, order := range permutations(5) {
		var released atomic.Int32
		d := testenv.Must(a.USMInterface())(t)
		b := testenv.Must(FromUSMInterface(rt, &d, func() { released.Add(1) }))(t)
		view := testenv.Must(b.Index(IndexFrom(3)))(t)
		tensor := testenv.Must(view.DLPack())(t)
		c := testenv.Must(FromDLPack(rt, testenv.Must(view.DLPackWith(ExportOptions{Legacy: true}))(t)))(t)
		e, keeper, err := DLPackToUSMInterface(rt, testenv.Must(c.DLPack())(t))
		require.NoError(t, err)
		require.Equal(t, addressOf(view), e.Data)
		holders := []func(){b.Release, view.Retain().Release, tensor.Release, c.Release, keeper.Release}
		for _, i := range order {
			memmgr.Flush()
			require.Zero(t, released.Load(), order)
			holders[i]()
		}
		eventually(t, func() bool { return released.Load() == 1 })
	}
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			out = append(out, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return out
}

// TestFromDLPackOfOldProducers: producers that omit strides or the deleter, and a byte offset.
func TestFromDLPackOfOldProducers(t *testing.T) {
	needDLPack(t)
	rt := testsycl.Runtime(t)
	buf := testenv.Must(memmgr.New(memmgr.Host(), memmgr.Request{Size: 256}))(t)
	t.Cleanup(buf.Release) // after the array below
	raw := testenv.Must(buf.Bytes())(t)
	clear(raw)
	le := binary.LittleEndian
	le.PutUint64(raw[0:], uint64(buf.Address()+128)) // data
	le.PutUint32(raw[8:], uint32(dlpack.DeviceCPU))
	le.PutUint32(raw[16:], 2) // ndim
	raw[20], raw[21], raw[22] = uint8(dlpack.CodeInt), 16, 1
	le.PutUint64(raw[24:], uint64(buf.Address()+64)) // shape
	le.PutUint64(raw[40:], 4)                        // byte_offset
	le.PutUint64(raw[64:], 2)
	le.PutUint64(raw[72:], 3)
	for i := range 8 {
		le.PutUint16(raw[128+2*i:], uint16(10+i))
	}
	x := testenv.Must(dlpack.Import(buf.Data(), false))(t)
	_, _, hasStrides := producerTensor(x)
	require.False(t, hasStrides)
	b := testenv.Held(FromDLPack(rt, x))(t)
	require.Equal(t, []int{3, 1}, b.Strides())
	require.Equal(t, buf.Address()+132, addressOf(b))
	require.Equal(t, "[[12 13 14]\n [15 16 17]]", b.String())
}

// TestExchangeOfManyDimensions uses the maximum number of dimensions, and none.
func TestExchangeOfManyDimensions(t *testing.T) {
	needDLPack(t)
	rt := testsycl.Runtime(t)
	for _, n := range []int{0, 1, 4, 5, MaxDims} {
		shape := slices.Repeat([]int{1}, n)
		if n > 0 {
			shape[n/2] = 3
		}
		a := testenv.Held(Full(memmgr.Host(), Int16, shape, 7))(t)
		b := testenv.Held(FromDLPack(rt, testenv.Must(a.DLPack())(t)))(t)
		require.Equal(t, a.Shape(), b.Shape())
		require.Equal(t, a.Strides(), b.Strides())
		require.Equal(t, elements(t, a), elements(t, b))
	}
}
