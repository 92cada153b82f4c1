package cells_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/memmgr"
)

func TestConversions(t *testing.T) {
	b, err := memmgr.New(memmgr.Host(), memmgr.Request{Size: 100})
	require.NoError(t, err)
	c := cells.Of(b)
	require.Equal(t, b.Address(), c.Address)
	require.Equal(t, b, cells.Buffer(c))
	require.Equal(t, 1, b.Count(), "no conversion adds a reference")
	b.Release()
	require.NotEqual(t, b, cells.Buffer(c), "the cell has a new generation")
	require.Panics(t, func() { cells.Of(b) })
	require.Panics(t, func() { cells.Of(memmgr.Buffer{}) })
}
