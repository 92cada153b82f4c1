package stacks_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/stacks"
)

func capture() uint32 { return stacks.Capture(4, 1) }

func TestEqualStacksHaveOneNumber(t *testing.T) {
	var numbers []uint32
	for range 2 {
		numbers = append(numbers, capture())
	}
	require.Equal(t, numbers[0], numbers[1])
	require.NotEqual(t, numbers[0], capture())
	frame, _ := runtime.CallersFrames(stacks.Of(numbers[0])).Next()
	require.True(t, strings.HasSuffix(frame.Function, ".capture"), frame.Function)
	require.Nil(t, stacks.Of(0))
	require.Nil(t, stacks.Of(1<<31))
}

func TestStacksOfFreedMemory(t *testing.T) {
	defer stacks.Depth.Store(stacks.Depth.Swap(4))
	c, err := owner.New(nil)
	require.NoError(t, err)
	stacks.NoteAllocation(c)
	allocated, ref := c.Stack, c.Ref()
	require.NotZero(t, allocated)
	require.NotEqual(t, allocated, stacks.Former(ref).Stack, "it is not freed")
	stacks.NoteRelease(c)
	require.Zero(t, c.Stack)
	former := stacks.Former(ref)
	require.Equal(t, allocated, former.Stack)
	require.NotZero(t, former.Released)
	require.Equal(t, former, stacks.FormerAt(c))
	c.Release()
	require.Equal(t, former, stacks.Former(ref), "the handle is stale")
}
