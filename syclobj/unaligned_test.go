//go:build linux && cgo

package syclobj_test

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testfaults"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestUnalignedDriver: memory has the requested alignment also if the driver ignores or refuses it, and the
// driver gets the addresses of its own blocks back.
func TestUnalignedDriver(t *testing.T) {
	for name, variables := range testfaults.Unaligned {
		t.Run(name, func(t *testing.T) {
			testfaults.Child(t, 1, variables, func(*testfaults.Faults) {
				q := openReal(t).DefaultQueue()
				for kind := syclobj.USMDevice; kind <= syclobj.USMHost; kind++ {
					useAligned(t, q, kind)
				}
				require.Zero(t, syclobj.LiveObjects().Allocations)
				testenv.Failed(t, testenv.ErrorOf(q.Alloc(syclobj.USMDevice, 1<<40, 1<<21)), syclobj.ErrAllocation, "aligned to 2097152")
			})
		})
	}
}

func useAligned(t *testing.T, q *syclobj.Queue, kind syclobj.USMKind) {
	type block struct {
		p    unsafe.Pointer
		data []byte
	}
	var blocks []block
	for _, size := range []uintptr{1, 100, 4096, 3 << 20} {
		for _, align := range []uintptr{0, 1, 64, 256, 4096, 1 << 21} {
			p := testenv.Must(q.Alloc(kind, size, align))(t)
			require.Zero(t, uintptr(p)%max(align, 1), "%d bytes of %v aligned to %d", size, kind, align)
			if align == 0 {
				require.Zero(t, uintptr(p)%syclobj.DefaultAlign)
			}
			data := bytes.Repeat([]byte{byte(len(blocks) + 1)}, int(size))
			require.NoError(t, q.Write(p, data))
			blocks = append(blocks, block{p, data})
		}
	}
	for i, b := range blocks {
		back := make([]byte, len(b.data))
		require.NoError(t, q.Read(back, b.p))
		require.True(t, bytes.Equal(b.data, back), "block %d", i)
		require.NoError(t, syclobj.Free(b.p))
	}
}
