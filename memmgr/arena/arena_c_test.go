//go:build cgo && linux

package arena_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner/ownertest"
	"github.com/usmbridge/usmbridge/memmgr/arena"
)

// Memory that C dropped is freed before a request would be refused for lack of it, and at the end.
func TestMemoryDroppedInCIsFreed(t *testing.T) {
	a := arena.New(arena.Options{Limit: 1000})
	m := a.Over(newPool(t))
	for range 500 {
		b := allocate(t, m, 1000, "")
		ownertest.Drop(cells.Of(b))
	}
	b := allocate(t, m, 1000, "")
	ownertest.Drop(cells.Of(b))
	require.Eventually(t, func() bool { return a.Left().Blocks == 0 }, time.Minute, time.Millisecond)
	require.Zero(t, a.End())
}
