package share_test

import (
	"go/build"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestArchitectures checks that 386 is the only architecture of Go on Linux without socket support.
func TestArchitectures(t *testing.T) {
	for _, arch := range []string{"386", "amd64", "arm", "arm64", "loong64", "mips64le", "mipsle", "ppc64le", "riscv64", "s390x"} {
		c := build.Default
		c.GOOS, c.GOARCH = "linux", arch
		for file, want := range map[string]bool{"link_linux.go": arch != "386", "link_other.go": arch == "386"} {
			require.Equal(t, want, testenv.Must(c.MatchFile(".", file))(t), "%s on %s", file, arch)
		}
	}
}
