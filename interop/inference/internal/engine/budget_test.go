package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBudget(t *testing.T) {
	b := NewBudget(1000, 750)
	require.True(t, b.Take("a", 700))
	require.False(t, b.Take("a", 51))
	require.True(t, b.Take("b", 200))
	require.False(t, b.Take("b", 200), "more than there is in all")
	b.Give("a", 700)
	require.True(t, b.Take("b", 200))
	b.Give("b", 400)
	require.Zero(t, b.Used())
	require.Empty(t, b.byTenant)
}
