package peercred

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Where users are missing from the namespace, the overflow id is no user.
func TestUserMap(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"0 100000 65536\n":                   false,
		"0 1000 1\n1 100000 4294967294\n":    false,
		"1 1 4294967295\n":                   false,
		"":                                   false,
	} {
		require.Equal(t, want, coversAll(text), "%q", text)
	}
	all := mapsAll
	defer func() { mapsAll = all }()
	mapsAll = func() bool { return false }
	require.False(t, Same(overflow, overflow))
	require.True(t, Same(1000, 1000))
	mapsAll = func() bool { return true }
	require.True(t, Same(overflow, overflow))
	require.False(t, Same(1000, 0))
}
