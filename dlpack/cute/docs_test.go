package cute

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// The tensors of CuTe DSL's page on framework integration. b is torch's export of
// (1,4,1,32,1):(4,1,4,4,4), with strides of 1 for modes of size 1.
var (
	docA = dlpack.View{Shape: []int64{8, 4, 16, 2}, Strides: []int64{2, 16, 64, 1}}
	docB = dlpack.View{Shape: []int64{1, 4, 1, 32, 1}, Strides: []int64{1, 1, 1, 4, 1}}
	docC = dlpack.View{Shape: []int64{2, 2}, Strides: []int64{8, 2}}
	docD = dlpack.View{Shape: []int64{3, 4, 2, 5}, Strides: []int64{5, 0, 0, 1}}
	docE = dlpack.View{Shape: []int64{2, 2, 3, 4}, Strides: []int64{2, 1, 4, 12}}
	ones = dlpack.View{Shape: []int64{1, 1, 1}, Strides: []int64{1, 1, 1}}
	huge = dlpack.View{Shape: []int64{1e9, 1e9}, Strides: []int64{1e9, 1}}
)

func specOf(t testing.TB, v dlpack.View, o Options) Spec {
	v.DataType, v.Device = float32Type, dlpack.Device{Type: 1}
	return testenv.Must(NewSpec(v, o))(t)
}

// TestDocumentedLayoutMarks: t0 to t8 of mark_layout_dynamic, and the page's
// other examples, under both rules of deduction.
func TestDocumentedLayoutMarks(t *testing.T) {
	const (
		ambiguous = "Can't deduce the leading dimension from layout, please specify the leading_dim explicitly"
		noneLarge = "Can't deduce the leading dimension from layout (multiple dimensions have stride 1 but none has size > 1), please specify leading_dim explicitly"
	)
	skip := Options{Leading: LeadingSkipSizeOne}
	for _, c := range []struct {
		name    string
		view    dlpack.View
		options Options
		lead    int
		layout  string
		err     string
	}{
		{"t0", docA, Options{}, Deduce, "(?,?,?,?):(?,?,?,1)", ""},
		{"t1", docB, Options{}, 0, "(?,?,?,?,?):(1,?,?,?,?)", ""},
		{"t2", docB, Options{}, 2, "(?,?,?,?,?):(?,?,1,?,?)", ""},
		{"t3", docC, Options{}, Deduce, "(?,?):(?,?)", ""},
		{"t4", docD, Options{}, Deduce, "(?,?,?,?):(?,0,0,1)", ""},
		{"t5 by the older rule", docB, Options{}, Deduce, "", ambiguous},
		{"t5 by the newer rule", docB, Options{Leading: LeadingSkipSizeOne, Strides: Strides64}, Deduce, "(?,?,?,?,?):(?{i64},1,?{i64},?{i64},?{i64})", ""},
		{"t5_fail by the older rule", ones, Options{}, Deduce, "", ambiguous},
		{"t5_fail by the newer rule", ones, skip, Deduce, "", noneLarge},
		{"t6", docA, Options{}, 1, "", "Expected strides[leading_dim] == 1, but got 16"},
		{"t7", docB, Options{}, 3, "", "Expected strides[leading_dim] == 1, but got 4"},
		{"t8", huge, Options{Strides: Strides32}, Deduce, "", "Layout in DLTensorWrapper has int32 overflow risk. Please set use_32bit_stride to False"},
		{"t8 with 64 bits", huge, Options{Strides: Strides64}, Deduce, "(?,?):(?{i64},1)", ""},
		{"given", docE, Options{}, 1, "(?,?,?,?):(?,1,?,?)", ""},
		{"given wrongly", docE, Options{}, 0, "", "Expected strides[leading_dim] == 1, but got 2"},
		{"counted from the end", docE, Options{}, -3, "(?,?,?,?):(?,1,?,?)", ""},
		{"the last is not the leading one", docE, Options{}, -1, "", "Expected strides[leading_dim] == 1, but got 12"},
		{"out of range", docE, Options{}, 4, "", "Expected leading_dim to be in range [0, 4) or [-4, -1], but got 4"},
		{"out of range from the end", docE, Options{}, -5, "", "Expected leading_dim to be in range [0, 4) or [-4, -1], but got -5"},
		{"implicit", dlpack.View{Shape: []int64{30, 20, 32}}, Options{}, Deduce, "(?,?,?):(?,?,1)", ""},
		{"a negative stride", dlpack.View{Shape: []int64{4, 6}, Strides: []int64{-6, 1}}, Options{}, Deduce, "(?,?):(?,1)", ""},
		{"no modes", dlpack.View{Shape: []int64{}}, Options{}, Deduce, "():()", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := specOf(t, c.view, c.options)
			before := s.Layout()
			err := s.MarkLayoutDynamic(c.lead)
			if c.err != "" {
				requireText(t, c.err, err)
				require.Equal(t, before, s.Layout(), "a failed mark changes nothing")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.layout, s.Layout())
		})
	}
}

// requireText compares error texts, a final full stop aside.
func requireText(t *testing.T, want string, err error) {
	t.Helper()
	require.Error(t, err)
	got := err.Error()
	if got != want {
		require.Equal(t, want+".", got)
	}
}

// compactCall is one call of MarkCompactShapeDynamic.
type compactCall struct {
	mode         int
	order        []int
	divisibility int64
}

// TestDocumentedCompactMarks: t0 to t13 of mark_compact_shape_dynamic.
func TestDocumentedCompactMarks(t *testing.T) {
	t2 := []compactCall{{1, nil, 2}, {3, nil, 2}}
	for _, c := range []struct {
		name   string
		view   dlpack.View
		width  StrideWidth
		calls  []compactCall
		layout string
		err    string
		kind   error
	}{
		{"t0", docA, StridesPlain, []compactCall{{0, nil, 2}}, "(?{div=2},4,16,2):(2,?{div=4},?{div=16},1)", "", nil},
		{"t1", docA, StridesPlain, []compactCall{{1, nil, 2}}, "(8,?{div=2},16,2):(2,16,?{div=32},1)", "", nil},
		{"t2", docA, StridesPlain, t2, "(8,?{div=2},16,?{div=2}):(?{div=2},?{div=16},?{div=32},1)", "", nil},
		{"t2 with 64 bits", docA, Strides64, t2, "(8,?{div=2},16,?{div=2}):(?{i64 div=2},?{i64 div=16},?{i64 div=32},1)", "", nil},
		{"t2 with 32 bits", docA, Strides32, t2, "(8,?{div=2},16,?{div=2}):(?{div=2},?{div=16},?{div=32},1)", "", nil},
		{"t3", docB, StridesPlain, []compactCall{{2, []int{3, 0, 2, 4, 1}, 1}}, "(1,4,?,32,1):(0,1,4,?{div=4},0)", "", nil},
		{"t4", docB, StridesPlain, []compactCall{{2, []int{2, 3, 4, 0, 1}, 1}}, "(1,4,?,32,1):(0,1,128,4,0)", "", nil},
		{"t5", docA, StridesPlain, append(t2[:2:2], compactCall{3, []int{0, 1, 2, 3}, 5}), "", "The stride_order is not consistent with the last stride_order", ErrStrideOrder},
		{"t6", docA, StridesPlain, []compactCall{{3, []int{0, 1, 2, 3}, 5}}, "", "The stride_order is not consistent with the deduced stride_order", ErrStrideOrder},
		{"t7", docB, StridesPlain, []compactCall{{0, nil, 4}}, "", "The layout could not be deduced, please specify the stride_order explicitly", ErrStrideOrder},
		{"t8", docB, StridesPlain, []compactCall{{30, []int{3, 0, 2, 4, 1}, 5}}, "", "Expected mode value to be in range [0, 5), but got 30", ErrMode},
		{"t9", docB, StridesPlain, []compactCall{{3, []int{2, 1, 2, 3, 4}, 5}}, "", "Expected stride_order to contain all the dimensions of the tensor, but it doesn't contain 0", ErrStrideOrder},
		{"t10", docB, StridesPlain, []compactCall{{3, []int{0, 1, 2, 3, 4, 5}, 5}}, "", "Expected stride_order to have 5 elements, but got 6", ErrStrideOrder},
		{"t11", docB, StridesPlain, []compactCall{{0, []int{3, 2, 4, 0, 1}, 4}}, "", "The shape(1) of mode(0) is not divisible by the divisibility(4)", ErrDivisibility},
		{"t12", docB, StridesPlain, []compactCall{{0, []int{2, 1, 3, 0, 4}, 1}}, "", "The stride_order is not consistent with the layout", ErrStrideOrder},
		{"t13", huge, Strides32, []compactCall{{0, nil, 1}}, "", "Layout in DLTensorWrapper has int32 overflow risk. Please set use_32bit_stride to False", ErrStride32},
		{"a value outside the rank", docC, StridesPlain, []compactCall{{0, []int{0, -1}, 1}}, "", "Expected stride_order value to be in range [0, 2), but got -1", ErrStrideOrder},
		{"no divisibility", docA, StridesPlain, []compactCall{{0, nil, 0}}, "", "Expected divisibility to be at least 1, but got 0: 1 says nothing of the extent, n that it is a multiple of n", ErrDivisibility},
		{"column order", dlpack.View{Shape: []int64{4, 2}, Strides: []int64{1, 4}}, StridesPlain, []compactCall{{0, []int{1, 0}, 1}}, "(?,2):(1,?)", "", nil},
		{"(3,2,0,1)", dlpack.View{Shape: []int64{5, 3, 2, 4}, Strides: []int64{3, 1, 15, 30}}, StridesPlain, []compactCall{{3, []int{3, 2, 0, 1}, 1}}, "(5,3,2,?):(3,1,15,30)", "", nil},
		{"deduced", docE, StridesPlain, []compactCall{{1, []int{3, 2, 0, 1}, 1}}, "(2,?,3,4):(?,1,?{div=2},?{div=6})", "", nil},
		{"large strides", dlpack.View{Shape: []int64{2, 65536, 65536}}, Strides64, []compactCall{{0, []int{0, 1, 2}, 1}}, "(?,65536,65536):(4294967296,65536,1)", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := specOf(t, c.view, Options{Strides: c.width})
			var err error
			for _, call := range c.calls {
				if err = s.MarkCompactShapeDynamic(call.mode, call.order, call.divisibility); err != nil {
					break
				}
			}
			if c.err != "" {
				requireText(t, c.err, err)
				require.ErrorIs(t, err, c.kind)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.layout, s.Layout())
		})
	}
}

// TestNotCompact: layouts with gaps, overlaps or broadcasts have no compact
// marks; a mode of size 1 may have any stride.
func TestNotCompact(t *testing.T) {
	for _, c := range []struct {
		name           string
		shape, strides []int64
		order          []int
		kind           error
	}{
		{"gap", []int64{8}, []int64{3}, nil, ErrNotCompact},
		{"gap, order given", []int64{8}, []int64{3}, []int{0}, ErrStrideOrder},
		{"padded rows", []int64{4, 6}, []int64{8, 1}, nil, ErrNotCompact},
		{"overlap", []int64{4, 6}, []int64{3, 1}, nil, ErrNotCompact},
		{"broadcast", []int64{4, 6}, []int64{0, 1}, nil, ErrNotCompact},
		{"reversed", []int64{4, 6}, []int64{-6, 1}, nil, ErrNotCompact},
		{"tie of equal extents", []int64{2, 2}, []int64{4, 4}, nil, ErrStrideOrder},
		{"size 1 of any stride", []int64{4, 1, 6}, []int64{6, 77, 1}, nil, nil},
		{"size 1 on a tie is inner", []int64{4, 1, 6}, []int64{1, 4, 4}, nil, nil},
		{"empty", []int64{0, 3}, []int64{3, 1}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := specOf(t, dlpack.View{Shape: c.shape, Strides: c.strides}, Options{})
			before := s
			err := s.MarkCompactShapeDynamic(0, c.order, 1)
			if c.kind == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.kind)
			require.Equal(t, before, s)
		})
	}
	s := specOf(t, dlpack.View{Shape: []int64{8}, Strides: []int64{3}}, Options{})
	require.EqualError(t, s.MarkCompactShapeDynamic(0, nil, 1),
		"The layout (8):(3) is not compact: mode(0) has stride 3 where a compact layout has 1. Use mark_layout_dynamic, or a compact copy of the tensor.")
}

// TestEmptyDivisibility: any number divides an extent of 0; a product of them
// that overflows is cut to a part that still divides.
func TestEmptyDivisibility(t *testing.T) {
	s := specOf(t, dlpack.View{Shape: []int64{4, 0, 8}}, Options{})
	require.NoError(t, s.MarkCompactShapeDynamic(1, nil, 1<<62))
	require.Equal(t, "(4,?{div=4611686018427387904},8):(?{div=8},8,1)", s.Layout())
}

// TestMarkAfterMark: marks apply to the layout as earlier ones left it.
func TestMarkAfterMark(t *testing.T) {
	s := specOf(t, dlpack.View{Shape: []int64{4, 6}}, Options{})
	require.NoError(t, s.MarkLayoutDynamic(Deduce))
	require.NoError(t, s.MarkCompactShapeDynamic(1, nil, 3))
	require.Equal(t, "(?,?{div=3}):(?{div=3},1)", s.Layout())
	require.NoError(t, s.MarkLayoutDynamic(Deduce))
	require.Equal(t, "(?,?):(?,1)", s.Layout())
}
