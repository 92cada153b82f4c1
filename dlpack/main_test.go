package dlpack_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/usmbridge/usmbridge/dlpack"
)

// TestMain fails the run if a test did not release a tensor.
func TestMain(m *testing.M) {
	code := m.Run()
	if n := dlpack.Live(); n != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d tensors were neither released nor detached\n", n)
		code = 1
	}
	os.Exit(code)
}
