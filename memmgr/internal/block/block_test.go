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
		s.PushBlock(c, k, 7)
	}
	require.EqualValues(t, 1, s.TopBlocks())
	m := s.Pop()
	require.EqualValues(t, 7, m.Since)
	s.Push(m)
	s.PopBlock()
	require.EqualValues(t, full, s.TopBlocks())
	for range 2 * full {
		require.NotNil(t, s.PopBlock())
	}
	require.True(t, s.Empty())
}

// Magazines keep the tick since which they are idle. TakeIdle takes those of a tick or longer.
func TestTakeIdle(t *testing.T) {
	var s Stack
	for since := range uint32(4) {
		var m Magazine
		for _, c := range inHand(t, 2) {
			m.Push(c)
		}
		m.Since = 10 + since
		s.Push(m)
	}
	require.NotNil(t, s.PopBlock())
	none := s.TakeIdle(9)
	require.True(t, none.Empty())
	idle := s.TakeIdle(11)
	for _, since := range []uint32{11, 10} {
		m := idle.Pop()
		require.Equal(t, Magazine{m.Head, 2, since}, m)
	}
	require.True(t, idle.Empty())
	all := s.TakeIdle(13)
	require.True(t, s.Empty())
	m := all.Pop()
	require.Equal(t, Magazine{m.Head, 1, 13}, m)
	m = all.Pop()
	require.Equal(t, Magazine{m.Head, 2, 12}, m)
	require.True(t, all.Empty())
}
