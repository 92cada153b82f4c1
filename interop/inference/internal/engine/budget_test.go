package engine

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBudget(t *testing.T) {
	b := NewBudget(1000)
	require.True(t, b.Take(1000))
	require.False(t, b.Take(1))
	b.Give(600)
	require.EqualValues(t, 400, b.Used())
	require.False(t, b.Take(601))
	b.Give(400)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 1000 {
				if b.Take(100) { // what the others have is no more than 700
					b.Give(100)
				} else {
					t.Error("refused")
				}
			}
		})
	}
	clients.Wait()
	require.Zero(t, b.Used())
}
