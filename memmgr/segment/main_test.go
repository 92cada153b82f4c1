package segment_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// runPeer runs another process of a test instead of the tests, if the environment says so. Only Linux has such tests.
var runPeer = func() {}

func TestMain(m *testing.M) {
	runPeer()
	memtest.Main(m)
}
