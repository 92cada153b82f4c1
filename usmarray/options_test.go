package usmarray

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// TestReadOnlyOption: every function that makes an array applies ReadOnly, after filling the array.
func TestReadOnlyOption(t *testing.T) {
	r := memmgr.Host()
	source := testenv.Held(FromSlice(r, []int32{1, 2}, nil))(t)
	layout := mustLayout(t, []int{2}, nil, 0)
	for name, a := range map[string]*Array{
		"New":             testenv.Held(New(r, Int32, []int{2}, ReadOnly()))(t),
		"Zeros":           testenv.Held(Zeros(r, Int32, []int{2}, ReadOnly()))(t),
		"Full":            testenv.Held(Full(r, Int32, []int{2}, 7, ReadOnly()))(t),
		"FromSlice":       testenv.Held(FromSlice(r, []int32{1, 2}, nil, ReadOnly()))(t),
		"Arange":          testenv.Held(Arange(r, int32(1), 1, 2, ReadOnly()))(t),
		"Copy":            testenv.Held(source.Copy(r, ReadOnly()))(t),
		"AsType":          testenv.Held(source.AsType(r, Float32, ReadOnly()))(t),
		"FromPinnedSlice": testenv.Held(FromPinnedSlice([]int32{1, 2}, nil, ReadOnly()))(t),
		"WrapBuffer":      testenv.Held(WrapBuffer(source.Buffer(), Int32, layout, ReadOnly()))(t),
	} {
		require.True(t, a.ReadOnly(), name)
		require.ErrorIs(t, a.SetAt(5, 0), ErrReadOnly, name)
	}
	require.False(t, source.ReadOnly())
	require.False(t, testenv.Held(source.AsReadOnly().Copy(r))(t).ReadOnly(), "a copy of a read-only array is writable")
}

// TestOptionsOfExistingMemory: functions that do not allocate refuse the options of an allocation.
func TestOptionsOfExistingMemory(t *testing.T) {
	a := testenv.Held(Zeros(memmgr.Host(), Int32, []int{2}))(t)
	layout := mustLayout(t, []int{2}, nil, 0)
	for _, o := range []Option{FortranOrder(), WithTag("tag")} {
		testenv.Failed(t, testenv.ErrorOf(FromBuffer(a.Buffer(), Int32, layout, o)), memmgr.ErrRequest, "usmarray: FromBuffer: ")
		require.ErrorIs(t, testenv.ErrorOf(WrapBuffer(a.Buffer(), Int32, layout, Padded(), o)), memmgr.ErrRequest)
		require.ErrorIs(t, testenv.ErrorOf(FromPinnedSlice([]int32{1}, nil, o)), memmgr.ErrRequest)
	}
	require.Equal(t, 1, a.Buffer().Count())
}
