//go:build !cgo || !linux

package memtest

import (
	"testing"

	"github.com/usmbridge/usmbridge/memmgr"
)

// testDropInC tests releases on another goroutine, because this build has no C code.
func testDropInC(t *testing.T, r memmgr.Resource, o Options) { testOtherGoroutine(t, r, o) }
