package pending_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/pending"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// device is the simulated device.
type device struct{ *memtest.Simulated }

func newDevice() *device { return &device{memtest.NewSimulated()} }

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
}

func newSet(d *device) *set {
	s := &set{}
	s.Init(&s.mu, d, pending.Owner{
		Complete: func(c *owner.Cell) { s.complete = append(s.complete, c) },
		Serve:    func() {},
		Report:   func(uint64) {},
	})
	return s
}

// A request for an in-order queue takes the newest cell of its class, with the event.
func TestTakeFor(t *testing.T) {
	d := newDevice()
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

func newFrees(t *testing.T) *pending.Frees {
	return pending.NewFrees(func(err error) { t.Error(err) })
}

// The functions run without a lock: one may add memory, for which Flush waits too.
func TestFlushWaitsForFreesOfFrees(t *testing.T) {
	d := newDevice()
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
	d := newDevice()
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
	d := uncomparable{device: newDevice()}
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
