package cute

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// markDeduced is the mark of the implicit conversion.
func markDeduced(s *Spec) error { return s.MarkLayoutDynamic(Deduce) }

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
		s := testenv.Must(NewSpec(v, c.options))(t)
		if c.mark != nil {
			require.NoError(t, c.mark(&s))
		}
		require.Equal(t, c.want, s.Key().String())
	}
}

// TestKeyContents: the key contains exactly the properties that a kernel depends on.
func TestKeyContents(t *testing.T) {
	base := dlpack.View{Shape: []int64{32, 20}, DataType: dlpack.Float32, Device: dlpack.CPU}
	key := func(change func(*dlpack.View, *Options), marks ...func(*Spec) error) Key {
		v, o := base, Options{}
		change(&v, &o)
		s := testenv.Must(NewSpec(v, o))(t)
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

// TestKeysAndStringsAgree: two keys are equal if and only if their strings are, for inline and larger
// ranks.
func TestKeysAndStringsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	byText, byKey := map[string]Key{}, map[Key]string{}
	for range 20000 {
		s := testenv.Must(NewSpec(randomView(r), Options{Strides: StrideWidth(r.IntN(3)), Leading: LeadingSkipSizeOne}))(t)
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
