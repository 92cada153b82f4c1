package block

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
)

func TestClasses(t *testing.T) {
	last := 0
	for units := uintptr(1); units <= MaxClassUnits; units++ {
		k := ClassFor(units)
		require.True(t, k == last || k == last+1, "%d units have class %d after class %d", units, k, last)
		last = k
		size := uintptr(ClassUnits[k])
		require.GreaterOrEqual(t, size, units)
		require.Equal(t, k, ClassFor(size))
		require.Equal(t, int64(size)*Unit, ClassBytes[k])
		switch unused := size - units; {
		case units <= 8:
			require.Zero(t, unused)
		case units <= CoarseUnits:
			require.LessOrEqual(t, unused*8, size)
			require.Less(t, k, CoarseClasses)
		default:
			require.LessOrEqual(t, unused*64, size)
			require.GreaterOrEqual(t, k, CoarseClasses)
		}
	}
	require.Equal(t, NumClasses-1, last)
}

// inHand returns new cells in the state in hand.
func inHand(t *testing.T, n int) (all []*owner.Cell) {
	for range n {
		c, err := owner.New(nil)
		require.NoError(t, err)
		SetState(c, InHand)
		all = append(all, c)
	}
	t.Cleanup(func() {
		for _, c := range all {
			SetState(c, Free)
			owner.Recycle(c)
		}
	})
	return all
}

func TestStackOfMagazines(t *testing.T) {
	cells := inHand(t, 5)
	var s Stack
	require.True(t, s.Empty())
	require.Nil(t, s.PopBlock())
	require.Zero(t, s.Pop())
	for _, n := range []int{2, 3} {
		var m Magazine
		for _, c := range cells[:n] {
			m.Push(c)
		}
		cells = cells[n:]
		require.EqualValues(t, n, m.N)
		require.Equal(t, int64(n)*512, m.Bytes(1))
		s.Push(m)
	}
	require.EqualValues(t, 3, s.TopBlocks())
	first := s.PopBlock()
	require.NotNil(t, first)
	require.EqualValues(t, 2, s.TopBlocks())
	require.NotNil(t, s.PopBlock())
	require.NotNil(t, s.PopBlock())
	require.EqualValues(t, 2, s.TopBlocks(), "the magazine below")
	m := s.Pop()
	require.EqualValues(t, 2, m.N)
	for c := m.Head.Cell(); c != nil; c = c.Next.Cell() {
		SetState(c, InHand)
	}
	require.True(t, s.Empty())
}

// Blocks that are pushed one by one fill a magazine before the next one begins.
func TestPushBlockFillsMagazines(t *testing.T) {
	const k = NumClasses - 1
	full := int(MagazineSize[k])
	var s Stack
	for _, c := range inHand(t, 2*full+1) {
		s.PushBlock(c, k)
	}
	require.EqualValues(t, 1, s.TopBlocks())
	s.PopBlock()
	require.EqualValues(t, full, s.TopBlocks())
	for range 2 * full {
		require.NotNil(t, s.PopBlock())
	}
	require.True(t, s.Empty())
}
