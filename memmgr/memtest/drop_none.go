//go:build !cgo || !linux

package memtest

import (
	"testing"

	"github.com/usmbridge/usmbridge/memmgr"
)

// testDropInC has no C to drop from in this build; a Go release on another
// goroutine is all there is.
func testDropInC(t *testing.T, r memmgr.Resource, o Options) { testOtherGoroutine(t, r, o) }
