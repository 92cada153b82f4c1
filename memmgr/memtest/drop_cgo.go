//go:build cgo && linux

package memtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/owner/ownertest"
	"github.com/usmbridge/usmbridge/memmgr"
)

// testDropInC drops references on C threads. The memory must be freed without another allocation.
func testDropInC(t *testing.T, r memmgr.Resource, _ Options) {
	var cells []*owner.Cell
	for i := range 500 {
		b := allocate(t, r, uintptr(i*10), 0)
		if i%2 == 0 {
			b.SetExported()
		}
		cells = append(cells, b.Cell())
	}
	require.NoError(t, ownertest.DropOnThreads(cells, 3))
}
