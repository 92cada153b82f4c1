package usmarray

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestConcurrentHolders: many goroutines retain, view, export, import and release one memory. The last
// release releases the owner, once.
func TestConcurrentHolders(t *testing.T) {
	rt := testsycl.Runtime(t)
	var released atomic.Int32
	base := testenv.Held(Arange[int32](memmgr.Host(), 0, 1, 64))(t)
	buf := testenv.Must(memmgr.FromForeign(base.Pointer(), 256, memmgr.ForeignOptions{Release: func() { released.Add(1) }}))(t)
	a := testenv.Must(FromBuffer(buf, Int32, mustLayout(t, []int{8, 8}, nil, 0)))(t)
	var wg sync.WaitGroup
	for g := range 8 {
		mine := a.Retain()
		wg.Go(func() {
			defer mine.Release()
			for i := range 200 {
				v, err := mine.Index(IndexAt((g + i) % 8))
				if err != nil {
					t.Error(err)
					return
				}
				k := v.Retain()
				if x, err := k.At(i % 8); err != nil || x != int32((g+i)%8*8+i%8) {
					t.Errorf("%v, %v", x, err)
				}
				if dlpack.Supported() {
					exchange(t, k, rt)
				}
				k.Release()
				k.Release()
			}
		})
	}
	for range 4 {
		wg.Go(a.Release) // idempotent, also at the same time
	}
	wg.Wait()
	memmgr.Flush()
	eventually(t, func() bool { return released.Load() == 1 })
}

func exchange(t *testing.T, a *Array, rt *syclobj.Runtime) {
	x, err := a.DLPack()
	if err != nil {
		t.Error(err)
		return
	}
	b, err := FromDLPack(rt, x)
	if err != nil {
		t.Error(err)
		x.Release()
		return
	}
	b.Release()
}

func TestFromBuffer(t *testing.T) {
	buf := testenv.Held(memmgr.New(memmgr.Host(), memmgr.Request{Size: 4096}))(t)
	for _, c := range []struct {
		l    Layout
		dt   DataType
		kind error
	}{
		{mustLayout(t, []int{1024}, nil, 0), Float32, nil},
		{mustLayout(t, []int{1024}, nil, 1), Float32, ErrLayout},
		{mustLayout(t, []int{4}, []int{-1}, 2), Float32, ErrLayout},
		{mustLayout(t, []int{0}, nil, 1024), Float32, nil},
		{mustLayout(t, []int{0}, nil, 1025), Float32, ErrLayout},
		{mustLayout(t, []int{8192}, nil, 0), dlpack.Float4E2M1FN, nil},
		{mustLayout(t, []int{8193}, nil, 0), dlpack.Float4E2M1FN, ErrLayout},
		{Layout{shape: []int{-1}, strides: []int{1}}, Float32, ErrLayout},
		{mustLayout(t, []int{4}, nil, 0), DataType{Code: 99, Bits: 8, Lanes: 1}, ErrType},
	} {
		a, err := WrapBuffer(buf, c.dt, c.l)
		if c.kind != nil {
			require.ErrorIs(t, err, c.kind, c.l)
			continue
		}
		require.NoError(t, err, c.l)
		require.False(t, owns(a))
	}
	require.ErrorIs(t, testenv.ErrorOf(WrapBuffer(buf, dlpack.Float4E2M1FN, mustLayout(t, []int{4097}, nil, 0), Padded())), ErrLayout)
	ro := testenv.Must(WrapBuffer(buf, Float32, mustLayout(t, []int{4}, nil, 0), ReadOnly()))(t)
	require.ErrorIs(t, ro.Fill(1), ErrReadOnly)
}
