package usmarray

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

func mustLayout(t testing.TB, shape, strides []int, offset int) Layout {
	t.Helper()
	return testenv.Must(NewLayout(shape, strides, offset))(t)
}

func TestNewLayout(t *testing.T) {
	big := maxInt/2 + 1
	for _, c := range []struct {
		name           string
		shape, strides []int
		offset         int
		want           string // part of the error, empty for none
		lo, hi         int
	}{
		{"scalar", nil, nil, 3, "", 3, 4},
		{"C order", []int{2, 3}, nil, 0, "", 0, 6},
		{"negative stride", []int{4}, []int{-1}, 3, "", 0, 4},
		{"zero stride", []int{4, 2}, []int{0, 1}, 0, "", 0, 2},
		{"empty", []int{0, 5}, []int{7, -9}, 11, "", 11, 11},
		{"wild stride on length one", []int{1, 2}, []int{maxInt, 1}, 0, "", 0, 2},
		{"product wraps", []int{big, 8}, []int{0, 0}, 0, "more elements", 0, 0},
		{"product wraps beside zero", []int{0, big, 8}, nil, 0, "more elements", 0, 0},
		{"negative dimension", []int{2, -1}, nil, 0, "dimension 1 is -1", 0, 0},
		{"span wraps", []int{3}, []int{big}, 0, "spans more", 0, 0},
		{"span wraps downwards", []int{3}, []int{minInt}, 0, "spans more", 0, 0},
		{"end wraps", []int{1}, []int{1}, maxInt, "spans more", 0, 0},
		{"strides that cancel", []int{2, 2}, []int{maxInt - 1, minInt + 1}, 0, "", minInt + 1, maxInt},
		{"lowest stride", []int{2}, []int{minInt}, 0, "spans more", 0, 0},
		{"sum wraps", []int{2, 2}, []int{big, big}, 0, "spans more", 0, 0},
		{"strides of another length", []int{2}, []int{1, 1}, 0, "2 strides for 1", 0, 0},
		{"too many", make([]int, 65), nil, 0, "at most 64", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := NewLayout(c.shape, c.strides, c.offset)
			if c.want != "" {
				testenv.Failed(t, err, ErrLayout, c.want)
				return
			}
			require.NoError(t, err)
			lo, hi := l.bounds()
			require.Equal(t, []int{c.lo, c.hi}, []int{lo, hi})
		})
	}
}

func TestIndexErrors(t *testing.T) {
	l := mustLayout(t, []int{2, 3}, nil, 0)
	for _, c := range []struct {
		items []Index
		kind  error
		want  string
	}{
		{[]Index{IndexAt(2)}, ErrIndex, "index 2 on axis 0 of length 2"},
		{[]Index{All, IndexAt(-4)}, ErrIndex, "index -4 on axis 1"},
		{[]Index{All, All, All}, ErrLayout, "3 items"},
		{[]Index{Ellipsis, Ellipsis}, ErrLayout, "one Ellipsis"},
		{[]Index{All.By(0)}, ErrLayout, "step 0"},
		{slices.Repeat([]Index{NewAxis}, 63), ErrLayout, "more than 64"},
	} {
		_, err := l.index(c.items...)
		require.ErrorIs(t, err, c.kind)
		testenv.Failed(t, err, ErrLayout, c.want)
	}
}

func TestIndexViews(t *testing.T) {
	l := mustLayout(t, []int{4, 5, 6}, nil, 7)
	for _, c := range []struct {
		items []Index
		want  string
	}{
		{nil, "(4,5,6):(30,6,1)+7"},
		{[]Index{IndexAt(1)}, "(5,6):(6,1)+37"},
		{[]Index{IndexAt(-1), Ellipsis, IndexAt(2)}, "(5,):(6,)+99"},
		{[]Index{All.By(-1)}, "(4,5,6):(-30,6,1)+97"},
		{[]Index{IndexRange(1, 3), NewAxis, IndexFrom(-2).By(1)}, "(2,1,2,6):(30,0,6,1)+55"},
		{[]Index{Ellipsis, IndexTo(-1).By(2)}, "(4,5,3):(30,6,2)+7"},
		{[]Index{IndexRange(3, 1)}, "(0,5,6):(30,6,1)+7"},
		{[]Index{IndexRange(10, -10).By(-2)}, "(2,5,6):(-60,6,1)+97"},
		{[]Index{IndexAt(0), IndexAt(0), IndexAt(5)}, "():()+12"},
		{[]Index{All.By(maxInt)}, "(1,5,6):(30,6,1)+7"},
		{[]Index{All.By(minInt)}, "(1,5,6):(30,6,1)+97"},
	} {
		require.Equal(t, c.want, testenv.Must(l.index(c.items...))(t).String(), "%v", c.items)
	}
}

func TestTranspose(t *testing.T) {
	l := mustLayout(t, []int{2, 3, 4}, nil, 1)
	r := testenv.Must(l.transpose())(t)
	require.Equal(t, "(4,3,2):(1,4,12)+1", r.String())
	r = testenv.Must(l.transpose(1, -1, 0))(t)
	require.Equal(t, "(3,4,2):(4,1,12)+1", r.String())
	for _, axes := range [][]int{{0, 1}, {0, 0, 1}, {0, 1, 3}, {0, 1, -4}} {
		require.ErrorIs(t, testenv.ErrorOf(l.transpose(axes...)), ErrLayout)
	}
}

func TestReshape(t *testing.T) {
	big := maxInt/2 + 1
	for _, c := range []struct {
		shape, strides []int
		to             []int
		want           string // layout, or part of the error
	}{
		{[]int{2, 6}, nil, []int{3, 4}, "(3,4):(4,1)"},
		{[]int{2, 6}, nil, []int{-1}, "(12,):(1,)"},
		{[]int{2, 6}, []int{12, 1}, []int{2, 2, 3}, "(2,2,3):(12,3,1)"},
		{[]int{2, 6}, []int{12, 2}, []int{2, 3, 2, 1}, "(2,3,2,1):(12,4,2,2)"},
		{[]int{3, 4}, []int{1, 3}, []int{12}, "copy it first"},
		{[]int{6}, []int{-1}, []int{2, 3}, "(2,3):(-3,-1)"},
		{[]int{4}, []int{0}, []int{2, 2}, "(2,2):(0,0)"},
		{[]int{1, 1}, []int{5, 9}, nil, "():()"},
		{nil, nil, []int{1, 1}, "(1,1):(1,1)"},
		{[]int{0, 3}, nil, []int{5, 0}, "(5,0):(1,1)"},
		{[]int{0, 3}, nil, []int{0, -1}, "do not fill"},
		{[]int{5}, nil, []int{2, -1}, "do not fill"},
		{[]int{5}, nil, []int{6}, "cannot take"},
		{[]int{4}, nil, []int{-1, -1}, "only one may be -1"},
		{[]int{4}, nil, []int{-2}, "negative"},
		{[]int{4}, nil, []int{maxInt, 4}, "more elements"},
		{[]int{2, 3}, []int{-big - 3, big - 1}, []int{6}, "copy it first"}, // the strides match only because they wrap
	} {
		l := mustLayout(t, c.shape, c.strides, 0)
		got, err := l.reshape(c.to...)
		if err != nil {
			testenv.Failed(t, err, ErrLayout, c.want)
			continue
		}
		require.Equal(t, c.want, got.String())
	}
}

func TestBroadcast(t *testing.T) {
	l := mustLayout(t, []int{3, 1}, nil, 2)
	require.Equal(t, "(2,3,4):(0,1,0)+2", testenv.Must(l.broadcast(2, 3, 4))(t).String())
	for _, to := range [][]int{{3}, {2, 4}, {-1, 3, 1}, {maxInt, 3, 4}} {
		require.ErrorIs(t, testenv.ErrorOf(l.broadcast(to...)), ErrLayout)
	}
}
