package userid

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMapsAll(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n":  true,
		"0 0 65534\n65534 65534 4294901761\n": true,
		"0 100000 65536\n":                    false,
		"65534 1000 1\n":                      false,
		"0 0 4294967294\n":                    false,
		"0 0 4294967295 0\n":                  false,
		"0 0 x\n":                             false,
		"":                                    false,
		"0 0 99999999999999999999\n":          false,
		"0 1000 1\n1 100000 65536\n65537 165536 4294901758": true,
	} {
		require.Equal(t, want, mapsAll([]byte(text)), "%q", text)
	}
}

func TestCheckOwn(t *testing.T) {
	own := uint32(os.Geteuid()) //nolint:gosec // a user id
	if own != overflow() {
		require.NoError(t, CheckOwn(own))
	}
	require.ErrorContains(t, CheckOwn(own+1), "this process is of user")
}
