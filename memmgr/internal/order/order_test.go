package order_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// device is the simulated device. It counts barriers, and refuses barriers and joins on request.
type device struct {
	*memtest.Simulated
	barriers int
	refuse   bool
}

func (d *device) Barrier(queue uintptr) (uintptr, error) {
	d.barriers++
	if d.refuse {
		return 0, errors.New("no barrier")
	}
	return d.Simulated.Barrier(queue)
}

func (d *device) Join(queue, a, b uintptr) (uintptr, error) {
	if d.refuse {
		return 0, errors.New("no join")
	}
	return d.Simulated.Join(queue, a, b)
}

func (d *device) end(work uintptr) {
	d.Complete(work)
	d.ReleaseEvent(work)
}

func deadCell(t *testing.T, queue uintptr) *owner.Cell {
	c, err := owner.NewDead(nil)
	require.NoError(t, err)
	c.SetQueue(queue)
	t.Cleanup(func() { owner.Recycle(c) })
	return c
}

// release releases the event of a cell, which must have one that is not done.
func release(t *testing.T, d *device, c *owner.Cell) {
	t.Helper()
	event := c.SwapPending(0)
	require.NotZero(t, event)
	require.False(t, d.EventDone(event))
	d.ReleaseEvent(event)
}

// AddEvent joins two events that are not done. An event that is done is replaced, and a refusal changes nothing.
func TestAddEvent(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	c := deadCell(t, 1)
	first, second := d.Submit(1), d.Submit(2)
	require.NoError(t, order.AddEvent(d, c, d.CopyEvent(first), false))
	d.refuse = true
	before := c.Pending()
	require.Error(t, order.AddEvent(d, c, second, false))
	require.Equal(t, before, c.Pending())
	d.refuse = false
	require.NoError(t, order.AddEvent(d, c, d.CopyEvent(second), false))
	d.end(first)
	require.False(t, d.EventDone(c.Pending()))
	d.end(second)
	require.True(t, d.EventDone(c.Pending()))
	third := d.Submit(3)
	require.NoError(t, order.AddEvent(d, c, d.CopyEvent(third), false))
	release(t, d, c)
	d.end(third)
	require.Zero(t, d.Events())
}

// All cells of a round share one barrier for each queue, and a refused one is not asked for again.
func TestBarriersAreSharedByQueue(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	work := d.Submit(1)
	cells := []*owner.Cell{deadCell(t, 1), deadCell(t, 1), deadCell(t, 2)}
	b := order.Barriers{}
	for i, c := range cells {
		require.True(t, b.PutBehind(d, c, i == 2))
	}
	b.Release(d)
	require.Equal(t, 2, d.barriers)
	require.Zero(t, cells[2].Pending(), "nothing is pending on its queue")
	for _, c := range cells[:2] {
		release(t, d, c)
	}
	d.refuse, d.barriers = true, 0
	b = order.Barriers{}
	for _, c := range cells {
		require.False(t, b.PutBehind(d, c, false))
	}
	b.Release(d)
	require.Equal(t, 2, d.barriers)
	d.end(work)
	require.Zero(t, d.Events())
}

func TestGather(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	own, shown := d.Submit(1), d.Submit(2)
	c := deadCell(t, 2)
	c.SwapPending(d.CopyEvent(own))
	c.SetFlags(order.ShownFlags)
	d.refuse = true
	require.False(t, order.Gather(d, c))
	require.EqualValues(t, 2, c.Queue(), "the caller tries again")
	d.refuse = false
	require.True(t, order.Gather(d, c))
	require.Zero(t, c.Queue())
	require.Zero(t, c.Flags()&order.ShownFlags)
	d.end(own)
	require.False(t, d.EventDone(c.Pending()), "the queue of another library has work")
	d.end(shown)
	require.True(t, order.Gather(d, c))
	require.Zero(t, c.Pending(), "all work has ended")
	require.Zero(t, d.Events())
	require.True(t, order.Gather(nil, c), "without a Synchronizer there is no work")
}

// unbatched has only the methods of a Synchronizer.
type unbatched struct{ order.Synchronizer }

func TestEventsOneByOne(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	events := []uintptr{d.Submit(1), d.Submit(1)}
	done := make([]bool, 2)
	d.Complete(events[1])
	order.EventsDone(unbatched{d}, events, done)
	require.Equal(t, []bool{false, true}, done)
	d.Complete(events[0])
	order.ReleaseEvents(unbatched{d}, events)
	require.Zero(t, d.Events())
}
