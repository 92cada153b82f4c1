package owner

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

func TestGoReleaseDrainsInTheCaller(t *testing.T) {
	n := 0
	l := NewList(func(c *Cell) { n++; Recycle(c) })
	for i := range 10 {
		c := testenv.Must(New(l))(t)
		c.Release()
		require.Equal(t, i+1, n)
	}
}

func TestPushedCellsComeOutOldestFirst(t *testing.T) {
	l := NewList(nil)
	l.Close() // keeps the reaper's hands off
	var want []*Cell
	for range 5 {
		c := testenv.Must(New(l))(t)
		require.True(t, c.Unref())
		Push(c)
		want = append(want, c)
	}
	l.Drain()
	require.False(t, l.empty(), "a closed list keeps its cells")
	var got []*Cell
	for c := l.Take(); c != nil; c = c.Next.Cell() {
		got = append(got, c)
	}
	require.Equal(t, want, got)
	for _, c := range got {
		Recycle(c)
	}
}

func TestReaperDrainsCellsThatCDropped(t *testing.T) {
	var n atomic.Int32
	for _, options := range [][]Option{nil, {OwnGoroutine()}} {
		l := NewList(func(c *Cell) { n.Add(1); Recycle(c) }, options...)
		n.Store(0)
		for i := range 100 {
			c := testenv.Must(New(l))(t)
			require.True(t, c.Unref())
			Push(c)
			if i%10 == 0 {
				time.Sleep(time.Millisecond) // lets the reaper fall asleep
			}
		}
		require.Eventually(t, func() bool { return n.Load() == 100 }, time.Minute, time.Millisecond)
	}
}

func TestOwnGoroutineDoesNotDelayOtherLists(t *testing.T) {
	gate := make(chan struct{})
	var slow, quick atomic.Int32
	ls := NewList(func(c *Cell) { <-gate; slow.Add(1); Recycle(c) }, OwnGoroutine())
	lq := NewList(func(c *Cell) { quick.Add(1); Recycle(c) })
	for range 10 {
		c := testenv.Must(New(ls))(t)
		c.Release() // pushed: the caller must not block
		c = testenv.Must(New(lq))(t)
		require.True(t, c.Unref())
		Push(c)
	}
	require.Eventually(t, func() bool { return quick.Load() == 10 }, time.Minute, time.Millisecond)
	require.Zero(t, slow.Load())
	close(gate)
	ls.Sync()
	require.EqualValues(t, 10, slow.Load())
}

func TestBatchTakesTheChainItself(t *testing.T) {
	var n atomic.Int32
	l := NewList(nil, Batch(func(l *List) {
		for c := l.Take(); c != nil; {
			next := c.Next.Cell()
			Recycle(c)
			n.Add(1)
			c = next
		}
	}))
	for range 50 {
		c := testenv.Must(New(l))(t)
		c.Release()
	}
	l.Sync()
	require.EqualValues(t, 50, n.Load())
}

// Many goroutines make, share and drop cells. Each cell is drained once.
func TestConcurrentChurn(t *testing.T) {
	const goroutines, rounds = 8, 20000
	var drained atomic.Int64
	l := NewList(func(c *Cell) {
		if c.Count() != 0 {
			panic("drained alive")
		}
		drained.Add(1)
		Recycle(c)
	})
	var wg sync.WaitGroup
	shared := make(chan *Cell, 64)
	for range goroutines {
		wg.Go(func() {
			for i := range rounds {
				c, err := New(l)
				if err != nil {
					panic(err)
				}
				if i%3 == 0 {
					c.Ref().TryRetain()
					select {
					case shared <- c:
					default:
						c.Release()
					}
				}
				if i%5 == 0 {
					select {
					case o := <-shared:
						o.Release()
					default:
					}
				}
				c.Release()
			}
		})
	}
	wg.Wait()
	close(shared)
	for c := range shared {
		c.Release()
	}
	require.EqualValues(t, goroutines*rounds, drained.Load())
}
