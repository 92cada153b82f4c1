//go:build cgo && linux

package owner_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/owner/ownertest"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// A cell that Go puts on a list, and that a call of C takes and recycles which began before, has the accesses of
// its next user after those of the former one: the race detector reports nothing.
func TestCellsThatARunningCallOfCRecycles(t *testing.T) {
	const n = 100
	l := owner.NewList(nil, owner.Batch(func(*owner.List) {}))
	cells := map[*owner.Cell]bool{}
	for range n {
		c := testenv.Must(owner.New(l))(t)
		c.AtZero = ownertest.CountZero()
		cells[c] = true
	}
	go ownertest.RunList(l, n)
	time.Sleep(10 * time.Millisecond) // let the call begin
	go func() {
		for c := range cells {
			c.Requested = 1
			c.Release()
		}
	}()
	var others []*owner.Cell
	for found := false; !found; {
		c := testenv.Must(owner.New(nil))(t)
		others = append(others, c)
		found = cells[c]
		runtime.Gosched()
	}
	for _, c := range others {
		c.Release()
	}
}

func TestHeaderAndMirrorAgree(t *testing.T) {
	h := ownertest.HeaderLayout()
	cell, list, head := owner.GoLayout()
	require.Equal(t, cell, h.Cell)
	require.Equal(t, list, h.List)
	require.Equal(t, head, h.Control)
	require.Equal(t, []uint32{owner.ReadOnly, owner.Exported, owner.HostReadable, owner.Foreign, owner.Queued, owner.PendingHeld, owner.Poisoned, owner.Charged, owner.Lent, owner.Async, owner.OnQueues, owner.Alias, owner.Failed, owner.CUDA, owner.Imported, owner.UsedBits}, h.Flags)
	require.EqualValues(t, owner.LayoutVersion, h.Version)
	require.NotZero(t, owner.DropFunc())
}

// C and Go drop cells while no goroutine allocates or drains: the memory is freed.
func TestDropOnCThreadsReturnsByTheReaper(t *testing.T) {
	const n = 50000
	var drained atomic.Int64
	l := owner.NewList(func(c *owner.Cell) { drained.Add(1); owner.Recycle(c) })
	cells := make([]*owner.Cell, n)
	for i := range cells {
		c := testenv.Must(owner.New(l))(t)
		cells[i] = c
	}
	require.NoError(t, ownertest.DropOnThreads(cells, 4))
	require.Eventually(t, func() bool { return drained.Load() == n }, time.Minute, time.Millisecond)
	for _, c := range cells {
		require.Zero(t, c.Count())
	}
}

func TestAtZeroRunsInC(t *testing.T) {
	before := ownertest.ZeroSum()
	l := owner.NewList(func(*owner.Cell) { panic("a cell with a C function at zero is C's") })
	for i := range 100 {
		c := ownertest.NewCell(l)
		require.NotNil(t, c)
		c.AtZero = ownertest.CountZero()
		c.Context = uintptr(i)
		if i%2 == 0 {
			c.Release()
		} else {
			ownertest.Drop(c)
		}
	}
	l.Sync()
	require.EqualValues(t, 99*100/2, ownertest.ZeroSum()-before)
}

// C threads and goroutines contend for the same free cells and lists.
func TestChurnFromBothLanguages(t *testing.T) {
	const perThread = 30000
	var drained atomic.Int64
	l := owner.NewList(func(c *owner.Cell) { drained.Add(1); owner.Recycle(c) })
	before := ownertest.ZeroSum()
	var made atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { made.Add(int64(ownertest.Churn(l, perThread, 3))) })
	for range 2 {
		wg.Go(func() {
			for range perThread {
				c, err := owner.New(l)
				if err != nil {
					panic(err)
				}
				made.Add(1)
				c.Release()
			}
		})
	}
	wg.Wait()
	l.Sync()
	require.EqualValues(t, 5*perThread, made.Load())
	require.Equal(t, made.Load(), drained.Load()+ownertest.ZeroSum()-before)
}

func TestForkedChildDropsWithoutGo(t *testing.T) {
	var drained atomic.Int64
	l := owner.NewList(func(c *owner.Cell) { drained.Add(1); owner.Recycle(c) })
	c := testenv.Must(owner.New(l))(t)
	require.Zero(t, ownertest.DropInFork(c))
	l.Sync()
	require.Zero(t, drained.Load(), "the child's drop is the child's own")
	require.EqualValues(t, 1, c.Count())
	c.Release()
	require.EqualValues(t, 1, drained.Load())
}

// 16 C threads and 16 goroutines share the same cells: the threads drop their references, the goroutines add and drop
// references of their own by handles that may be stale. Each cell is finished once, after the last drop.
func TestSameCellsOnThreadsAndGoroutines(t *testing.T) {
	const n, both, rounds = 4000, 16, 3
	var drained atomic.Int64
	l := owner.NewList(func(c *owner.Cell) { drained.Add(1); owner.Recycle(c) })
	for round := range rounds {
		cells, refs := make([]*owner.Cell, n), make([]owner.Ref, n)
		for i := range cells {
			c := testenv.Must(owner.New(l))(t)
			cells[i], refs[i] = c, c.Ref()
		}
		var goroutines sync.WaitGroup
		var stop atomic.Bool
		var taken atomic.Int64
		for g := range both {
			goroutines.Go(func() {
				for i := g; !stop.Load(); i++ {
					if r := refs[i*7919%n]; r.TryRetain() {
						taken.Add(1)
						r.Cell().Release()
					}
				}
			})
		}
		require.Eventually(t, func() bool { return taken.Load() > both }, time.Minute, time.Millisecond)
		require.NoError(t, ownertest.DropOnThreads(cells, both))
		stop.Store(true)
		goroutines.Wait()
		l.Sync()
		require.Eventually(t, func() bool { return drained.Load() == int64(n*(round+1)) }, time.Minute, time.Millisecond)
		for _, r := range refs {
			require.False(t, r.Valid())
		}
	}
}
