package dlpack_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/usmbridge/usmbridge/dlpack"
)

// TestMain fails the run when a test left a tensor behind.
func TestMain(m *testing.M) {
	code := m.Run()
	for i := 0; i < 100 && dlpack.Live() != 0; i++ {
		time.Sleep(time.Millisecond)
	}
	if n := dlpack.Live(); n != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d tensors were neither released nor detached\n", n)
		code = 1
	}
	os.Exit(code)
}
