package python

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	a, b := Version{Major: 3, Minor: 11, Micro: 7}, Version{Major: 3, Minor: 12}
	require.Equal(t, "3.11.7", a.String())
	require.True(t, a.less(b))
	require.False(t, b.less(a))
	require.False(t, a.less(a))
	require.True(t, a.less(Version{Major: 3, Minor: 11, Micro: 8}))
}
