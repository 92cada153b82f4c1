package segment_test

import (
	"os"
	"testing"

	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(peerEnv); name != "" {
		runPeer(name)
	}
	memtest.Main(m)
}
