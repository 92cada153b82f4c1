package purge

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
	"github.com/usmbridge/usmbridge/memmgr/internal/heap"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
)

const (
	age  = 4
	mib  = 1 << 20
	unit = block.Unit
)

// machine is a heap with one segment of real pages, all touched, of which every other MiB is in use.
type machine struct {
	Purger
	heap     heap.Heap
	lock     sync.Mutex
	base     uintptr
	used     []*owner.Cell
	discards []string
	err      error
	failures []error
}

func newMachine(t *testing.T, size uintptr) *machine {
	m := &machine{}
	f := &front.Front{}
	f.Init(front.DefaultCache)
	m.heap.Init(heap.Options{
		Shared: math.MaxUint32, High: math.MaxUint64, Decay: heap.DecayAfter(age), Budget: &f.Budget,
		Drop: func(s heap.Segment) { require.NoError(t, sysmem.Unmap(s.Address, s.Size)) }, Emptied: func() {},
	})
	m.Init(&m.heap, &m.lock, func(address, size uintptr) error {
		require.False(t, m.Mu.TryLock())
		require.True(t, m.lock.TryLock(), "the heap is locked during a discard")
		m.lock.Unlock()
		m.discards = append(m.discards, fmt.Sprint(address-m.base, "+", size))
		if m.err != nil {
			return m.err
		}
		return sysmem.Discard(address, size)
	}, func(err error) { m.failures = append(m.failures, err) })
	var err error
	m.base, err = sysmem.Map(size, sysmem.PageSize)
	require.NoError(t, err)
	if !m.Untouched(m.base, size) {
		t.Skip("the system does not report which pages are resident")
	}
	c := m.heap.Grow(heap.Segment{Address: m.base, Size: size, Requested: size, Align: sysmem.PageSize}, true, mib/unit, 1, block.NoClass)
	for ; c != nil; c = m.heap.Carve(mib/unit, 1, block.NoClass) {
		touch(c.Data(), mib)
		block.SetState(c, block.InUse)
		m.used = append(m.used, c)
	}
	require.False(t, m.Untouched(m.base, size))
	for i := 1; i < len(m.used); i += 2 {
		m.heap.Cache(m.used[i], block.NoClass)
	}
	t.Cleanup(func() {
		for i := 0; i < len(m.used); i += 2 {
			m.heap.Cache(m.used[i], block.NoClass)
		}
		m.heap.Release(0)
		require.Zero(t, m.heap.Reserved())
	})
	return m
}

func TestAllReturnsThePagesOfFreeBlocksOnce(t *testing.T) {
	m := newMachine(t, 8*mib)
	require.EqualValues(t, 4*mib, m.All(0))
	require.Len(t, m.discards, 4)
	require.EqualValues(t, 4*mib, sysmem.Resident(m.base, 8*mib))
	require.Zero(t, m.All(0))
	require.Len(t, m.discards, 4, "a purged block is purged again")
}

// Portions end after 8 MiB; between them the bytes that are left are counted.
func TestAllKeepsSome(t *testing.T) {
	m := newMachine(t, 64*mib)
	require.EqualValues(t, 24*mib, m.All(8*mib))
	require.EqualValues(t, 8*mib, m.heap.DirtyBytes())
}

func TestTickPurgesIdleBlocks(t *testing.T) {
	m := newMachine(t, 4*mib)
	for range age - 1 {
		m.heap.Tick()
		m.Tick()
		require.Empty(t, m.discards)
	}
	m.heap.Tick()
	m.Tick()
	require.Equal(t, []string{"1048576+1048576", "3145728+1048576"}, m.discards)
}

// After an error nothing is purged any more, and blocks are back. It is reported, unless the memory has no pages.
func TestAnErrorEndsPurging(t *testing.T) {
	for _, c := range []struct {
		err      error
		failures int
	}{{errors.New("broken"), 1}, {fmt.Errorf("no pages: %w", errors.ErrUnsupported), 0}} {
		m := newMachine(t, 8*mib)
		m.err = c.err
		require.Zero(t, m.All(0))
		require.Zero(t, m.All(0))
		m.Tick()
		require.Len(t, m.discards, 1)
		require.Len(t, m.failures, c.failures)
		require.EqualValues(t, 4*mib, m.heap.FreeBytes())
		require.EqualValues(t, 4*mib, m.heap.DirtyBytes())
		require.False(t, m.Untouched(m.base, mib))
	}
}

func TestMemoryWithoutPages(t *testing.T) {
	m := newMachine(t, 4*mib)
	m.Init(&m.heap, &m.lock, nil, nil)
	require.Zero(t, m.All(0))
	m.Tick()
	m.Await()
	require.False(t, m.Untouched(m.base, mib))
	require.Empty(t, m.discards)
}

// touch writes one byte of each page.
func touch(p unsafe.Pointer, size uintptr) {
	for i := uintptr(0); i < size; i += sysmem.PageSize {
		*(*byte)(unsafe.Add(p, i)) = 1
	}
}
