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
	source := own(t)(FromSlice(r, []int32{1, 2}, nil))
	layout := mustLayout(t, []int{2}, nil, 0)
	for name, a := range map[string]*Array{
		"New":             own(t)(New(r, Int32, []int{2}, ReadOnly())),
		"Zeros":           own(t)(Zeros(r, Int32, []int{2}, ReadOnly())),
		"Full":            own(t)(Full(r, Int32, []int{2}, 7, ReadOnly())),
		"FromSlice":       own(t)(FromSlice(r, []int32{1, 2}, nil, ReadOnly())),
		"Arange":          own(t)(Arange(r, int32(1), 1, 2, ReadOnly())),
		"Copy":            own(t)(source.Copy(r, ReadOnly())),
		"AsType":          own(t)(source.AsType(r, Float32, ReadOnly())),
		"FromPinnedSlice": own(t)(FromPinnedSlice([]int32{1, 2}, nil, ReadOnly())),
		"WrapBuffer":      own(t)(WrapBuffer(source.Buffer(), Int32, layout, ReadOnly())),
	} {
		require.True(t, a.ReadOnly(), name)
		require.ErrorIs(t, a.SetAt(5, 0), ErrReadOnly, name)
	}
	require.False(t, source.ReadOnly())
	require.False(t, own(t)(source.AsReadOnly().Copy(r)).ReadOnly(), "a copy of a read-only array is writable")
}

// TestOptionsOfExistingMemory: functions that do not allocate refuse the options of an allocation.
func TestOptionsOfExistingMemory(t *testing.T) {
	a := own(t)(Zeros(memmgr.Host(), Int32, []int{2}))
	layout := mustLayout(t, []int{2}, nil, 0)
	for _, o := range []Option{FortranOrder(), WithTag("tag")} {
		testenv.Failed(t, testenv.ErrorOf(FromBuffer(a.Buffer(), Int32, layout, o)), memmgr.ErrRequest, "usmarray: FromBuffer: ")
		require.ErrorIs(t, testenv.ErrorOf(WrapBuffer(a.Buffer(), Int32, layout, Padded(), o)), memmgr.ErrRequest)
		require.ErrorIs(t, testenv.ErrorOf(FromPinnedSlice([]int32{1}, nil, o)), memmgr.ErrRequest)
	}
	require.Equal(t, 1, a.Buffer().Count())
}
