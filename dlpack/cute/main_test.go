package cute

import (
	"fmt"
	"os"
	"testing"

	"github.com/usmbridge/usmbridge/dlpack"
)

// TestMain fails the package when a test leaves a DLPack tensor behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if n := dlpack.Live(); n != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d DLPack tensors were not released\n", n)
		code = 1
	}
	os.Exit(code)
}
