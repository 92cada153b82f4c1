package cute

import (
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
)

// wrapped returns a tensor of Go memory and the count of its releases.
func wrapped(t testing.TB, shape ...int64) (*Tensor, *atomic.Int64) {
	memory := make([]float32, 4096)
	released := new(atomic.Int64)
	v := dlpack.View{Data: unsafe.Pointer(&memory[0]), Shape: shape, DataType: dlpack.Float32, Device: dlpack.CPU}
	c, err := Wrap(v, Options{}, func() { released.Add(1) })
	require.NoError(t, err)
	return c, released
}

func TestTensorFacts(t *testing.T) {
	c, released := wrapped(t, 30, 20)
	defer c.Release()
	require.Equal(t, []int64{30, 20}, c.Shape())
	require.Equal(t, []int64{20, 1}, c.Stride())
	require.Equal(t, 2, c.Rank())
	require.Equal(t, "generic", c.MemSpace().String())
	require.Equal(t, "Float32", c.ElementType().String())
	require.EqualValues(t, 4, c.AssumedAlign())
	data, err := c.Data()
	require.NoError(t, err)
	require.Regexp(t, `^Tensor<0x[0-9a-f]{16}@generic o \(30,20\):\(20,1\)>$`, c.String())
	require.Equal(t, c.String(), ptr(c.Spec()).TensorString(data))
	require.NoError(t, c.MarkCompactShapeDynamic(0, nil, 5))
	require.Equal(t, "(?{div=5},20):(20,1)", c.Layout())
	require.NoError(t, c.MarkLayoutDynamic(-1))
	require.Equal(t, "(?,?):(?,1)", c.Layout())
	require.Equal(t, []int64{30, 20}, c.Shape(), "extents are kept")
	require.Zero(t, released.Load())
}

func TestByteOffset(t *testing.T) {
	memory := make([]float32, 16)
	v := dlpack.View{Data: unsafe.Pointer(&memory[0]), ByteOffset: 8, Shape: []int64{4}, DataType: dlpack.Float32, Device: dlpack.CPU}
	c, err := Wrap(v, Options{}, nil)
	require.NoError(t, err)
	defer c.Release()
	data, err := c.Data()
	require.NoError(t, err)
	require.Equal(t, unsafe.Pointer(&memory[2]), data)
	v.ByteOffset = 6
	_, err = Wrap(v, Options{}, nil)
	require.ErrorIs(t, err, ErrAlignment)
}

func TestUseAfterRelease(t *testing.T) {
	c, released := wrapped(t, 4, 6)
	c.Release()
	c.Release()
	require.EqualValues(t, 1, released.Load(), "released once")

	require.ErrorIs(t, c.MarkLayoutDynamic(Deduce), ErrReleased)
	require.ErrorIs(t, c.MarkCompactShapeDynamic(0, nil, 1), ErrReleased)
	_, err := c.Data()
	require.ErrorIs(t, err, ErrReleased)
	_, err = c.Clone()
	require.ErrorIs(t, err, ErrReleased)
	_, err = NewTensorCache(1).Put(c)
	require.ErrorIs(t, err, ErrReleased)
	require.Equal(t, "Tensor<released>", c.String())
	for name, use := range map[string]func(){
		"Spec":         func() { c.Spec() },
		"Key":          func() { c.Key() },
		"Rank":         func() { c.Rank() },
		"Shape":        func() { c.Shape() },
		"Stride":       func() { c.Stride() },
		"Layout":       func() { c.Layout() },
		"ElementType":  func() { _ = c.ElementType() },
		"MemSpace":     func() { _ = c.MemSpace() },
		"AssumedAlign": func() { c.AssumedAlign() },
	} {
		func() {
			defer func() {
				err, ok := recover().(error)
				require.True(t, ok, "%s must panic with an error", name)
				require.ErrorIs(t, err, ErrReleased)
				require.ErrorContains(t, err, name)
			}()
			use()
		}()
	}
}

func TestCloneKeepsSource(t *testing.T) {
	for _, shape := range [][]int64{{4, 6}, wideView(12).Shape} {
		a, released := wrapped(t, shape...)
		b, err := a.Clone()
		require.NoError(t, err)
		before := a.Layout()
		require.NoError(t, b.MarkLayoutDynamic(-1))
		require.Equal(t, before, a.Layout(), "marks of a clone are its own")
		a.Release()
		require.Zero(t, released.Load(), "the clone holds the source")
		c, err := b.Clone()
		require.NoError(t, err, "a clone of a clone outlives the first tensor")
		b.Release()
		require.Zero(t, released.Load())
		c.Release()
		require.EqualValues(t, 1, released.Load())
	}
}

func TestCloneAndReleaseTogether(t *testing.T) {
	for range 200 {
		a, released := wrapped(t, 4, 6)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if b, err := a.Clone(); err == nil {
					b.Release()
				}
			})
		}
		group.Go(a.Release)
		group.Wait()
		require.EqualValues(t, 1, released.Load())
	}
}

func TestTensorCache(t *testing.T) {
	cache := NewTensorCache(2)
	a, released := wrapped(t, 4, 6)
	require.NoError(t, a.MarkLayoutDynamic(Deduce))
	data, err := a.Data()
	require.NoError(t, err)
	view := dlpack.View{Data: data, Shape: []int64{4, 6}, DataType: dlpack.Float32, Device: dlpack.CPU}

	key, err := cache.Put(a)
	require.NoError(t, err)
	require.Equal(t, a.Key(), key)
	a.Release()
	require.Zero(t, released.Load(), "the cache holds the source")

	hit, ok := cache.Get(key, view)
	require.True(t, ok)
	require.Equal(t, "(?,?):(?,1)", hit.Layout())
	hit.Release()

	withStrides := view
	withStrides.Strides = []int64{6, 1}
	hit, ok = cache.Get(key, withStrides)
	require.True(t, ok)
	hit.Release()

	for name, change := range map[string]func(*dlpack.View){
		"address":             func(v *dlpack.View) { v.ByteOffset = 4 },
		"extents":             func(v *dlpack.View) { v.Shape = []int64{5, 6} },
		"inner extent":        func(v *dlpack.View) { v.Shape = []int64{4, 5} },
		"rank":                func(v *dlpack.View) { v.Shape = []int64{24} },
		"strides":             func(v *dlpack.View) { v.Strides = []int64{8, 1} },
		"number of strides":   func(v *dlpack.View) { v.Strides = []int64{6} },
		"column-major memory": func(v *dlpack.View) { v.Strides = []int64{1, 4} },
	} {
		v := view
		change(&v)
		_, ok := cache.Get(key, v)
		require.False(t, ok, "the same kernel, another tensor: %s", name)
	}
	_, ok = cache.Get(Key{}, view)
	require.False(t, ok)

	require.Equal(t, 1, cache.Len())
	cache.Clear()
	require.Zero(t, cache.Len())
	require.EqualValues(t, 1, released.Load())
	_, ok = cache.Get(key, view)
	require.False(t, ok)
}

// TestTensorCacheStrides: without strides, a view of a cached transpose misses.
func TestTensorCacheStrides(t *testing.T) {
	cache := NewTensorCache(1)
	defer cache.Clear()
	memory := make([]float32, 24)
	view := dlpack.View{Data: unsafe.Pointer(&memory[0]), Shape: []int64{4, 6}, Strides: []int64{1, 4}, DataType: dlpack.Float32, Device: dlpack.CPU}
	c, err := Wrap(view, Options{}, nil)
	require.NoError(t, err)
	defer c.Release()
	key, err := cache.Put(c)
	require.NoError(t, err)
	view.Strides = nil
	_, ok := cache.Get(key, view)
	require.False(t, ok)
}

func TestWrapRefuses(t *testing.T) {
	_, err := Wrap(dlpack.View{DataType: dlpack.Complex64}, Options{}, func() { t.Error("release was called for a failed Wrap") })
	require.ErrorIs(t, err, ErrElementType)
	_, err = FromDLPack(dlpack.Tensor{}, Options{})
	require.ErrorIs(t, err, ErrReleased)
}

// TestReuse: a tensor made of what a released one left behind has nothing of it.
func TestReuse(t *testing.T) {
	for range 100 {
		for _, rank := range []int{64, 9, 3, 12, 0, 8} {
			v := wideView(rank)
			fresh, err := NewSpec(v, Options{})
			require.NoError(t, err)
			c, err := Wrap(v, Options{}, nil)
			require.NoError(t, err)
			require.Equal(t, fresh.AppendWords(nil), c.spec.AppendWords(nil))
			require.Equal(t, fresh.Key(), c.Key())
			if rank > 0 {
				require.NoError(t, c.MarkCompactShapeDynamic(rank-1, descending(rank), 1))
			}
			c.Release()
		}
	}
}

// descending is the stride order of C order.
func descending(rank int) []int {
	order := make([]int, rank)
	for i := range order {
		order[i] = i
	}
	return order
}
