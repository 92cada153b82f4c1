package owner_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// A list that is retired during a drain keeps its place until the drain ends, because the drain still reads it.
func TestRetiredListKeepsItsPlaceWhileItIsDrained(t *testing.T) {
	inside, proceed, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	l := owner.NewList(func(c *owner.Cell) {
		close(inside)
		<-proceed
		owner.Recycle(c)
	})
	place := l.Pointer()
	c := testenv.Must(owner.New(l))(t)
	require.True(t, c.Unref())
	owner.Push(c)
	go func() {
		defer close(done)
		l.Sync()
	}()
	<-inside
	l.Retire()
	var made []*owner.Cell
	fill := func() (reused bool) {
		for range 64 {
			c := testenv.Must(owner.New(nil))(t)
			made = append(made, c)
			reused = reused || c.Pointer() == place
		}
		return reused
	}
	require.False(t, fill(), "the place serves another cell while the list is drained")
	close(proceed)
	<-done
	require.Eventually(t, fill, time.Minute, 10*time.Millisecond, "the place was lost")
	for _, c := range made {
		require.True(t, c.Unref())
		owner.Recycle(c)
	}
	l.Drain() // does not affect cells that have the place now
}
