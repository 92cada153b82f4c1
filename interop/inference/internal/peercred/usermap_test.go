package peercred

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// If users are missing from the namespace, the overflow id is equal to no user.
func TestUserMap(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":                  true,
		"0 0 65534\n65534 65534 4294901761\n":                 true,
		"0 1000 1\n1 100000 65536\n65537 165536 4294901758\n": true,
		"0 100000 65536\n":                                    false,
		"0 1000 1\n1 100000 4294967293\n":                     false,
		"0 0 4294967294\n":                                    false,
		"0 0 4294967295 0\n":                                  false,
		"0 0 x\n":                                             false,
		"0 0 99999999999999999999\n":                          false,
		"":                                                    false,
	} {
		require.Equal(t, want, coversAll([]byte(text)), "%q", text)
	}
	all, id := mapsAll, overflow
	defer func() { mapsAll, overflow = all, id }()
	overflow = func() uint32 { return 12345 }
	mapsAll = func() bool { return false }
	require.False(t, Same(12345, 12345))
	require.True(t, Same(65534, 65534))
	require.True(t, Same(1000, 1000))
	mapsAll = func() bool { return true }
	require.True(t, Same(12345, 12345))
	require.False(t, Same(1000, 0))
}
