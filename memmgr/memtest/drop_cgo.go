//go:build cgo && linux

package memtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/owner/ownertest"
	"github.com/usmbridge/usmbridge/memmgr"
)

// testDropInC drops references on C threads. The memory must be freed without another allocation.
func testDropInC(t *testing.T, r memmgr.Resource, _ Options) {
	var dropped []*owner.Cell
	for i := range 500 {
		b := allocate(t, r, uintptr(i*10), 0)
		if i%2 == 0 {
			b.SetExported()
		}
		dropped = append(dropped, cells.Of(b))
	}
	require.NoError(t, ownertest.DropOnThreads(dropped, 3))
}
