package pending_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/internal/pending"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// device is the simulated device. It refuses barriers and joins on request.
type device struct {
	*memtest.Simulated
	refuse bool
}

func (d *device) Barrier(queue uintptr) (uintptr, error) {
	if d.refuse {
		return 0, errors.New("no barrier")
	}
	return d.Simulated.Barrier(queue)
}

// end completes work of which only the cells have references.
func (d *device) end(work uintptr) {
	d.Complete(work)
	d.ReleaseEvent(work)
}

// deadCell returns a dead cell in the state in hand, with work pending on a queue; 0 is no queue and no work.
func deadCell(t *testing.T, d *device, queue uintptr) (c *owner.Cell, work uintptr) {
	c, err := owner.NewDead(nil)
	require.NoError(t, err)
	c.Size = 1000
	block.SetState(c, block.InHand)
	block.SetClass(c, 3)
	if queue != 0 {
		work = d.Submit(queue)
		c.SetQueue(queue)
		c.SwapPending(d.CopyEvent(work))
	}
	return c, work
}

// recycle ends a cell that has left the set.
func recycle(c *owner.Cell) {
	block.SetState(c, block.Free)
	c.SetQueue(0)
	owner.Recycle(c)
}

// set is a Set with its own lock. It notes the cells that were completed.
type set struct {
	pending.Set
	mu       sync.Mutex
	complete []*owner.Cell
	reports  uint64
}

func newSet(d *device) *set {
	s := &set{}
	s.Init(&s.mu, d, pending.Owner{
		Complete: func(c *owner.Cell) { s.complete = append(s.complete, c) },
		Serve:    func() {},
		Report:   func(n uint64) { s.reports += n },
	})
	return s
}

func TestCellsCompleteInAnyOrder(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	d.InOrder(1)
	s := newSet(d)
	var cells []*owner.Cell
	var works []uintptr
	for i := range 40 {
		c, work := deadCell(t, d, uintptr(1+i%3))
		s.Add(c)
		cells, works = append(cells, c), append(works, work)
	}
	blocks, bytes := s.Waiting()
	require.EqualValues(t, 40, blocks)
	require.EqualValues(t, 40_000, bytes)
	for i := len(works) - 1; i >= 0; i-- {
		d.end(works[i])
		require.Equal(t, 1, s.CompleteAll())
		require.Same(t, cells[i], s.complete[len(s.complete)-1])
		recycle(cells[i])
	}
	require.Zero(t, s.Unstalled.Load())
	require.Zero(t, d.Events())
}

// A request for an in-order queue takes the newest cell of its class, with the event.
func TestTakeFor(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	d.InOrder(1)
	s := newSet(d)
	first, work1 := deadCell(t, d, 1)
	second, work2 := deadCell(t, d, 1)
	other, work3 := deadCell(t, d, 2)
	for _, c := range []*owner.Cell{first, second, other} {
		s.Add(c)
	}
	require.Nil(t, s.TakeFor(1, 4, 1, 1), "another class")
	require.Nil(t, s.TakeFor(2, 3, 1, 1), "not in order")
	require.Same(t, second, s.TakeFor(1, 3, 1, 1))
	require.Same(t, first, s.TakeFor(1, 3, 1, 1))
	require.Nil(t, s.TakeFor(1, 3, 1, 1))
	require.Equal(t, 3, block.Class(first))
	for i, c := range []*owner.Cell{first, second} {
		require.Equal(t, []uintptr{work1, work2}[i], c.Pending())
		d.end(c.SwapPending(0))
		d.ReleaseEvent([]uintptr{work1, work2}[i])
		recycle(c)
	}
	d.end(work3)
	s.AwaitAll()
	require.Equal(t, []*owner.Cell{other}, s.complete)
	recycle(other)
	require.Zero(t, d.Events())
}

// Stalled cells are reported once, do not count as unstalled, and complete when their work ends after all.
func TestStalledCells(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	s := newSet(d)
	c, work := deadCell(t, d, 1)
	s.Add(c)
	s.Stall()
	s.Tick()
	s.Tick()
	ever, now := s.Stalled()
	require.EqualValues(t, 1, ever)
	require.Equal(t, 1, now)
	require.EqualValues(t, 1, s.reports)
	require.Zero(t, s.Unstalled.Load())
	s.AwaitAll() // gives up
	require.Empty(t, s.complete)
	d.end(work)
	s.Tick()
	require.Equal(t, []*owner.Cell{c}, s.complete)
	recycle(c)
}

// Cells that other libraries were shown wait for a barrier, and for the next tick if it was refused.
func TestReturnedCellsWaitForABarrier(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	s := newSet(d)
	work := d.Submit(0) // of another library
	c, _ := deadCell(t, d, 0)
	block.SetState(c, block.InUse)
	d.refuse = true
	s.AddReturned(c)
	s.Tick()
	require.Zero(t, s.Unstalled.Load())
	blocks, _ := s.Waiting()
	require.EqualValues(t, 1, blocks)
	d.refuse = false
	s.Tick()
	require.EqualValues(t, 1, s.Unstalled.Load())
	require.NotZero(t, c.Pending(), "the event of the barrier")
	d.end(work)
	s.Tick()
	require.Equal(t, []*owner.Cell{c}, s.complete)
	recycle(c)
	require.Zero(t, d.Events())
}

func newFrees(t *testing.T) *pending.Frees {
	return pending.NewFrees(func(err error) { t.Error(err) })
}

// The functions run without a lock: one may add memory, for which Flush waits too.
func TestFlushWaitsForFreesOfFrees(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	f := newFrees(t)
	outer, work := deadCell(t, d, 1)
	block.SetState(outer, block.Free)
	freed := false
	f.Add(d, outer, func() {
		inner, work := deadCell(t, d, 2)
		block.SetState(inner, block.Free)
		f.Add(d, inner, func() { freed = true })
		d.end(work)
	})
	d.end(work)
	f.Flush()
	require.True(t, freed)
	held, unstalled := f.Waiting()
	require.False(t, held)
	require.False(t, unstalled)
	require.Zero(t, d.Events())
}

// Flush waits for a function that another goroutine runs.
func TestFlushWaitsForRunningFrees(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	f := newFrees(t)
	c, work := deadCell(t, d, 1)
	block.SetState(c, block.Free)
	begun, end, freed := make(chan struct{}), make(chan struct{}), false
	f.Add(d, c, func() {
		close(begun)
		<-end
		freed = true
	})
	d.end(work)
	var all sync.WaitGroup
	all.Go(f.CompleteSome)
	<-begun
	held, _ := f.Waiting()
	require.True(t, held)
	all.Go(func() { close(end) })
	f.Flush()
	require.True(t, freed)
	all.Wait()
}

// uncomparable is a Synchronizer that cannot be the key of a map.
type uncomparable struct {
	*device
	_ []int
}

func TestFreesOfAnUncomparableSynchronizer(t *testing.T) {
	d := uncomparable{device: &device{Simulated: memtest.NewSimulated()}}
	f := newFrees(t)
	freed := 0
	for range 2 {
		c, work := deadCell(t, d.device, 1)
		block.SetState(c, block.Free)
		f.Add(d, c, func() { freed++ })
		d.end(work)
	}
	f.Flush()
	require.Equal(t, 2, freed)
}

// Memory whose end cannot be observed is reported at once, and is not awaited.
func TestFreesReportRefusedBarriers(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated(), refuse: true}
	var reports []error
	f := pending.NewFrees(func(err error) { reports = append(reports, err) })
	work := d.Submit(0)
	c, _ := deadCell(t, d, 0)
	block.SetState(c, block.Free)
	c.SetFlags(order.ShownFlags)
	freed := false
	f.Add(d, c, func() { freed = true })
	f.Flush()
	require.Len(t, reports, 1)
	require.ErrorContains(t, reports[0], "refuses barriers")
	require.False(t, freed)
	d.refuse = false
	f.Tick()
	require.False(t, freed)
	d.end(work)
	f.Tick()
	require.True(t, freed)
}
