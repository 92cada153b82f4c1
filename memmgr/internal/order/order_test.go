package order_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// device is the simulated device. It refuses joins on request.
type device struct {
	*memtest.Simulated
	refuse bool
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

// AddEvent joins two events that are not done. An event that is done is replaced, and a refusal changes nothing.
func TestAddEvent(t *testing.T) {
	d := &device{Simulated: memtest.NewSimulated()}
	c, err := owner.NewDead(nil)
	require.NoError(t, err)
	defer owner.Recycle(c)
	c.SetQueue(1)
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
	event := c.SwapPending(0)
	require.False(t, d.EventDone(event))
	d.ReleaseEvent(event)
	d.end(third)
	require.Zero(t, d.Events())
}
