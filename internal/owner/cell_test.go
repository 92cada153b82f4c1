package owner

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

func TestCellStartsWithOneReference(t *testing.T) {
	c := testenv.Must(New(nil))(t)
	r := c.Ref()
	require.True(t, r.Valid())
	require.EqualValues(t, 1, r.Count())
	require.Equal(t, UnknownSize, c.Size)
	require.Same(t, c, At(c.Index()))
	require.True(t, r.TryRetain())
	require.EqualValues(t, 2, r.Count())
	c.Release()
	last, ok := r.TryUnref()
	require.True(t, last && ok)
	c.Finish()
	require.False(t, r.Valid())
	require.Zero(t, r.Count())
}

func TestStaleHandleIsRefused(t *testing.T) {
	c := testenv.Must(New(nil))(t)
	stale := c.Ref()
	c.Release()
	for _, r := range []Ref{stale, {}} {
		require.False(t, r.Valid())
		require.False(t, r.TryRetain())
		last, ok := r.TryUnref()
		require.False(t, last || ok)
		require.Zero(t, r.Count())
	}
}

func TestPlaceIsReusedWithANewGeneration(t *testing.T) {
	a := testenv.Must(New(nil))(t)
	old := a.Ref()
	a.Release()
	b := testenv.Must(New(nil))(t)
	require.Same(t, a, b, "the free cells are a stack")
	require.False(t, old.Valid())
	require.False(t, old.TryRetain())
	_, ok := old.TryUnref()
	require.False(t, ok)
	require.True(t, b.Ref().Valid())
	b.Release()
}

func TestRenewKeepsTheCellAndInvalidatesHandles(t *testing.T) {
	var kept *Cell
	l := NewList(func(c *Cell) { kept = c })
	c := testenv.Must(New(l))(t)
	old := c.Ref()
	c.Release()
	require.Same(t, c, kept)
	fresh := kept.Renew()
	require.False(t, old.Valid())
	require.True(t, fresh.Valid())
	require.Same(t, l, c.Home())
	last, ok := fresh.TryUnref()
	require.True(t, last && ok)
	kept.Retire()
	require.False(t, fresh.Valid())
	Recycle(kept)
}

func TestFactsOfACell(t *testing.T) {
	c := testenv.Must(New(nil))(t)
	defer c.Release()
	memory := make([]byte, 16)
	c.Address, c.Size = uintptr(unsafe.Pointer(&memory[0])), 16
	c.Requested = 13
	c.Tag = 7
	c.Stack = 8
	c.Block = 9
	c.Resource = 10
	c.SetQueue(11)
	c.Context = 12
	require.Equal(t, unsafe.Pointer(&memory[0]), c.Data())
	require.EqualValues(t, 16, c.Size)
	require.EqualValues(t, 13, c.Requested)
	require.EqualValues(t, []uint32{7, 8, 9, 10}, []uint32{c.Tag, c.Stack, c.Block, c.Resource})
	require.EqualValues(t, 11, c.Queue())
	require.EqualValues(t, 12, c.Context)
	require.Zero(t, c.SwapPending(5))
	require.EqualValues(t, 5, c.SwapPending(0))
	c.ResetFlags(ReadOnly)
	c.SetFlags(Exported)
	require.Equal(t, ReadOnly|Exported, c.Flags())
}

// goLayout lists the mirror's offsets in the header's order.
func goLayout() (cell, list, head []uintptr) {
	var (
		c Cell
		l clist
		h control
	)
	cell = []uintptr{
		unsafe.Offsetof(c.word),
		unsafe.Offsetof(c.Next),
		unsafe.Offsetof(c.pending),
		unsafe.Offsetof(c.queue),
		unsafe.Offsetof(c.Requested),
		unsafe.Offsetof(c.Private),
		unsafe.Offsetof(c.Resource),
		unsafe.Offsetof(c.flags),
		unsafe.Offsetof(c.Stack),
		unsafe.Offsetof(c.Tag),
		unsafe.Offsetof(c.home),
		unsafe.Offsetof(c.AtZero),
		unsafe.Offsetof(c.Address),
		unsafe.Offsetof(c.Size),
		unsafe.Offsetof(c.Place),
		unsafe.Offsetof(c.Context),
		unsafe.Offsetof(c.Block),
		unsafe.Offsetof(c.link),
		unsafe.Offsetof(c.Magazine),
		unsafe.Sizeof(c),
	}
	list = []uintptr{
		unsafe.Offsetof(l.word), unsafe.Offsetof(l.head), unsafe.Offsetof(l.waker),
		unsafe.Offsetof(l.id), unsafe.Offsetof(l.own), unsafe.Sizeof(l),
	}
	head = []uintptr{
		unsafe.Offsetof(h.freeHead), unsafe.Offsetof(h.bump), unsafe.Offsetof(h.committed),
		unsafe.Offsetof(h.limit), unsafe.Offsetof(h.slab), unsafe.Offsetof(h.waker),
		unsafe.Offsetof(h.layout), unsafe.Offsetof(h.cellBytes), unsafe.Sizeof(h),
	}
	return cell, list, head
}

func TestLayoutIsTheDocumentedOne(t *testing.T) {
	cell, list, head := goLayout()
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 40, 48, 52, 56, 60, 64, 72, 80, 88, 96, 104, 112, 116, 120, 128}, cell)
	require.Equal(t, []uintptr{0, 8, 16, 24, 32, 128}, list)
	require.Equal(t, []uintptr{0, 64, 68, 72, 76, 80, 88, 92, 128}, head)
}
