package cute

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
)

func TestKeyStrings(t *testing.T) {
	v := dlpack.View{Shape: []int64{32, 20}, DataType: dlpack.Float32, Device: dlpack.CPU}
	for _, c := range []struct {
		options Options
		mark    func(*Spec) error
		want    string
	}{
		{Options{}, nil, "Float32@generic align=4 o (32,20):(20,1)"},
		{Options{AssumedAlign: 16, Strides: Strides64}, nil, "Float32@generic align=16 o (32,20):(20,1)"},
		{Options{}, markDeduced, "Float32@generic align=4 o (?,?):(?,1)"},
		{Options{Strides: Strides64}, markDeduced, "Float32@generic align=4 o (?,?):(?{i64},1)"},
		{Options{Strides: Strides32, MemSpace: GMem}, markDeduced, "Float32@gmem align=4 o (?,?):(?{i32},1)"},
		{Options{Strides: Strides32}, func(s *Spec) error { return s.MarkCompactShapeDynamic(1, nil, 4) }, "Float32@generic align=4 o (32,?{div=4}):(?{i32 div=4},1)"},
	} {
		s, err := NewSpec(v, c.options)
		require.NoError(t, err)
		if c.mark != nil {
			require.NoError(t, c.mark(&s))
		}
		require.Equal(t, c.want, s.Key().String())
	}
}

// TestKeyIsWhatAKernelDependsOn: what a kernel does not see is not in the key,
// and all that it sees is.
func TestKeyIsWhatAKernelDependsOn(t *testing.T) {
	base := dlpack.View{Shape: []int64{32, 20}, DataType: dlpack.Float32, Device: dlpack.CPU}
	key := func(change func(*dlpack.View, *Options), marks ...func(*Spec) error) Key {
		v, o := base, Options{}
		change(&v, &o)
		s, err := NewSpec(v, o)
		require.NoError(t, err)
		for _, mark := range marks {
			require.NoError(t, mark(&s))
		}
		return s.Key()
	}
	same := func(*dlpack.View, *Options) {}
	static, dynamic := key(same), key(same, markDeduced)

	require.Equal(t, static, key(func(_ *dlpack.View, o *Options) { o.AssumedAlign = 4 }), "the natural alignment by number")
	require.Equal(t, static, key(func(_ *dlpack.View, o *Options) { o.Strides = Strides32 }), "the width of strides none of which is dynamic")
	require.Equal(t, static, key(func(v *dlpack.View, _ *Options) { v.Strides = []int64{20, 1} }), "C order spelled out")
	require.Equal(t, static, key(func(_ *dlpack.View, o *Options) { o.Leading = LeadingSkipSizeOne }), "the rule of deduction")
	require.Equal(t, dynamic, key(func(v *dlpack.View, _ *Options) { v.Shape = []int64{64, 7} }, markDeduced), "dynamic extents")

	different := []Key{
		static, dynamic,
		key(func(v *dlpack.View, _ *Options) { v.DataType = dlpack.Int32 }),
		key(func(v *dlpack.View, _ *Options) { v.Device.Type = 2 }),
		key(func(_ *dlpack.View, o *Options) { o.AssumedAlign = 16 }),
		key(func(v *dlpack.View, _ *Options) { v.Shape = []int64{33, 20} }),
		key(func(v *dlpack.View, _ *Options) { v.Shape, v.Strides = []int64{32, 20, 1}, []int64{20, 1, 1} }),
		key(func(v *dlpack.View, _ *Options) { v.Strides = []int64{24, 1} }),
		key(func(_ *dlpack.View, o *Options) { o.Strides = Strides32 }, markDeduced),
		key(func(_ *dlpack.View, o *Options) { o.Strides = Strides64 }, markDeduced),
		key(func(v *dlpack.View, _ *Options) { v.Strides = []int64{1, 32} }, markDeduced),
		key(func(v *dlpack.View, _ *Options) { v.Strides = []int64{0, 1} }, markDeduced),
		key(same, func(s *Spec) error { return s.MarkCompactShapeDynamic(0, nil, 1) }),
		key(same, func(s *Spec) error { return s.MarkCompactShapeDynamic(0, nil, 2) }),
		key(same, func(s *Spec) error { return s.MarkCompactShapeDynamic(1, nil, 2) }),
	}
	texts := map[string]bool{}
	for i, a := range different {
		texts[a.String()] = true
		for j, b := range different {
			require.Equal(t, i == j, a == b, "%s and %s", a, b)
		}
	}
	require.Len(t, texts, len(different), "different keys have different strings")
}

// TestKeysAndStringsAgree: two keys are equal exactly when their strings are,
// at ranks that are held inline and others.
func TestKeysAndStringsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	byText, byKey := map[string]Key{}, map[Key]string{}
	for range 20000 {
		s, err := NewSpec(randomView(r), Options{Strides: StrideWidth(r.IntN(3)), Leading: LeadingSkipSizeOne})
		require.NoError(t, err)
		if randomMark(r, &s) != nil && r.IntN(2) == 0 {
			continue
		}
		k := s.Key()
		if seen, ok := byText[k.String()]; ok {
			require.Equal(t, seen, k)
		}
		if seen, ok := byKey[k]; ok {
			require.Equal(t, seen, k.String())
		}
		byText[k.String()], byKey[k] = k, k.String()
	}
	require.Greater(t, len(byKey), 1000)
}

// TestHashIsStable: the hash is part of what other processes may rely on.
func TestHashIsStable(t *testing.T) {
	s := specOf(t, dlpack.View{Shape: []int64{32, 20}}, Options{})
	require.Equal(t, s.Key().Hash(), s.Key().Hash())
	require.Equal(t, uint64(0x1533e2864cee4957), s.Key().Hash())
	s = specOf(t, wideView(12), Options{})
	require.Equal(t, uint64(0xeabf975ce0259914), s.Key().Hash())
}

// keysOf returns n different keys.
func keysOf(t testing.TB, n int) []Key {
	keys := make([]Key, n)
	for i := range keys {
		s := specOf(t, dlpack.View{Shape: []int64{int64(i + 1), 4}}, Options{})
		keys[i] = s.Key()
	}
	return keys
}

func TestCache(t *testing.T) {
	var left []int
	c := NewCache(3, func(_ Key, v int) { left = append(left, v) })
	keys := keysOf(t, 5)
	for i, k := range keys[:3] {
		c.Put(k, i)
	}
	require.Equal(t, 3, c.Len())
	require.Equal(t, 3, c.Cap())
	for i, k := range keys[:3] {
		v, ok := c.Get(k)
		require.True(t, ok)
		require.Equal(t, i, v)
	}
	_, ok := c.Get(keys[4])
	require.False(t, ok)
	require.Empty(t, left)

	c.Put(keys[1], 11)
	require.Equal(t, []int{1}, left, "a replaced value leaves")
	v, ok := c.Get(keys[1])
	require.True(t, ok)
	require.Equal(t, 11, v)
	require.Equal(t, 3, c.Len())

	require.True(t, c.Remove(keys[0]))
	require.False(t, c.Remove(keys[0]))
	require.Equal(t, []int{1, 0}, left)
	c.Clear()
	require.ElementsMatch(t, []int{1, 0, 11, 2}, left)
	require.Zero(t, c.Len())
	c.Put(keys[0], 7)
	v, ok = c.Get(keys[0])
	require.True(t, ok)
	require.Equal(t, 7, v)
}

// TestCacheEviction: what was looked up since the last round stays.
func TestCacheEviction(t *testing.T) {
	c := NewCache[int](8, nil)
	keys := keysOf(t, 200)
	c.Put(keys[0], 0)
	for i, k := range keys[1:] {
		_, ok := c.Get(keys[0])
		require.True(t, ok, "the one in use was evicted by addition %d", i)
		c.Put(k, i)
		require.LessOrEqual(t, c.Len(), 8)
	}
	require.Equal(t, 8, c.Len())
}

func TestCacheGetOrAdd(t *testing.T) {
	c := NewCache[int](0, nil)
	require.Equal(t, 1, c.Cap())
	key := keysOf(t, 1)[0]
	failure := fmt.Errorf("no")
	_, err := c.GetOrAdd(key, func() (int, error) { return 0, failure })
	require.ErrorIs(t, err, failure)
	require.Zero(t, c.Len())
	v, err := c.GetOrAdd(key, func() (int, error) { return 5, nil })
	require.NoError(t, err)
	require.Equal(t, 5, v)
	v, err = c.GetOrAdd(key, func() (int, error) { t.Error("made twice"); return 0, nil })
	require.NoError(t, err)
	require.Equal(t, 5, v)
}

// TestCacheGetOrAddLoses: of two that make a value at once, the first to add
// wins and the other's leaves.
func TestCacheGetOrAddLoses(t *testing.T) {
	var left []int
	c := NewCache(2, func(_ Key, v int) { left = append(left, v) })
	key := keysOf(t, 1)[0]
	v, err := c.GetOrAdd(key, func() (int, error) {
		c.Put(key, 1)
		return 2, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, v)
	require.Equal(t, []int{2}, left)
	require.Equal(t, 1, c.Len())
}

// TestCacheConcurrently: every value that entered leaves once, no look-up gives
// a value of another key, and the bound holds throughout.
func TestCacheConcurrently(t *testing.T) {
	var entered, left atomic.Int64
	c := NewCache(16, func(Key, Key) { left.Add(1) })
	keys := keysOf(t, 64)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 5))
			for range 5000 {
				k := keys[r.IntN(len(keys))]
				switch r.IntN(8) {
				case 0:
					entered.Add(1)
					c.Put(k, k)
				case 1:
					c.Remove(k)
				case 2:
					v, err := c.GetOrAdd(k, func() (Key, error) { entered.Add(1); return k, nil })
					if err != nil || v != k {
						t.Errorf("GetOrAdd gave %s for %s: %v", v, k, err)
					}
				default:
					if v, ok := c.Get(k); ok && v != k {
						t.Errorf("Get gave %s for %s", v, k)
					}
				}
				if n := c.Len(); n > 16 {
					t.Errorf("%d values in a cache of 16", n)
				}
			}
		})
	}
	group.Wait()
	c.Clear()
	require.Equal(t, entered.Load(), left.Load())
	require.Positive(t, left.Load())
}
