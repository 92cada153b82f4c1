package owner

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestCellStartsWithOneReference(t *testing.T) {
	c, err := New(nil)
	require.NoError(t, err)
	r := c.Ref()
	require.True(t, r.Valid())
	require.EqualValues(t, 1, r.Count())
	require.Equal(t, UnknownSize, c.Size())
	require.Same(t, c, At(c.Index()))
	r.Retain()
	require.EqualValues(t, 2, r.Count())
	r.Release()
	r.Release()
	require.False(t, r.Valid())
	require.Zero(t, r.Count())
}

func TestStaleHandlePanicsWithTheReason(t *testing.T) {
	c, err := New(nil)
	require.NoError(t, err)
	r := c.Ref()
	r.Release()
	for op, f := range map[string]func(){"Retain": r.Retain, "Release": r.Release} {
		func() {
			defer func() {
				err, ok := recover().(error)
				require.True(t, ok)
				var stale *StaleError
				require.True(t, errors.As(err, &stale))
				require.Equal(t, op, stale.Op)
				require.Contains(t, err.Error(), "released")
			}()
			f()
		}()
	}
	require.Panics(t, func() { Ref{}.Release() })
	require.False(t, Ref{}.TryRetain())
}

func TestPlaceIsReusedWithANewGeneration(t *testing.T) {
	a, err := New(nil)
	require.NoError(t, err)
	old := a.Ref()
	old.Release()
	b, err := New(nil)
	require.NoError(t, err)
	require.Same(t, a, b, "the free cells are a stack")
	require.False(t, old.Valid())
	require.False(t, old.TryRetain())
	_, ok := old.TryUnref()
	require.False(t, ok)
	require.True(t, b.Ref().Valid())
	b.Ref().Release()
}

func TestRenewKeepsTheCellAndInvalidatesHandles(t *testing.T) {
	var kept *Cell
	l := NewList(func(c *Cell) { kept = c })
	c, err := New(l)
	require.NoError(t, err)
	old := c.Ref()
	old.Release()
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
	c, err := New(nil)
	require.NoError(t, err)
	defer c.Release()
	memory := make([]byte, 16)
	c.SetAddress(uintptr(unsafe.Pointer(&memory[0])), 16)
	c.SetRequested(13)
	c.SetTag(7)
	c.SetStack(8)
	c.SetBlock(9)
	c.SetResource(10)
	c.SetQueue(11)
	c.SetContext(12)
	require.Equal(t, unsafe.Pointer(&memory[0]), c.Data())
	require.EqualValues(t, 16, c.Size())
	require.EqualValues(t, 13, c.Requested())
	require.EqualValues(t, []uint32{7, 8, 9, 10}, []uint32{c.Tag(), c.Stack(), c.Block(), c.Resource()})
	require.EqualValues(t, 11, c.Queue())
	require.EqualValues(t, 12, c.Context())
	require.Zero(t, c.SwapPending(5))
	require.EqualValues(t, 5, c.SwapPending(0))
	c.SetFlags(ReadOnly | Exported)
	c.ClearFlags(ReadOnly)
	require.Equal(t, Exported, c.Flags())
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
		unsafe.Offsetof(c.next),
		unsafe.Offsetof(c.pending),
		unsafe.Offsetof(c.queue),
		unsafe.Offsetof(c.requested),
		unsafe.Offsetof(c.own),
		unsafe.Offsetof(c.resource),
		unsafe.Offsetof(c.flags),
		unsafe.Offsetof(c.stack),
		unsafe.Offsetof(c.tag),
		unsafe.Offsetof(c.home),
		unsafe.Offsetof(c.atZero),
		unsafe.Offsetof(c.data),
		unsafe.Offsetof(c.size),
		unsafe.Offsetof(c.place),
		unsafe.Offsetof(c.ctx),
		unsafe.Offsetof(c.block),
		unsafe.Offsetof(c.link),
		unsafe.Offsetof(c.own2),
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
