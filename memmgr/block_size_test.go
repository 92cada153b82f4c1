//go:build linux && cgo

package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestBlockSizes checks what the documentation of Pool says about the size of a block.
func TestBlockSizes(t *testing.T) {
	check := func(t *testing.T, upstream memmgr.Resource, least uint64) {
		p := newPool(t, upstream)
		for size := uintptr(1); size < 4<<20; size += 1 + size/97 {
			b := mustNew(t, p, size)
			got, over := b.Size(), float64(b.Size()-uint64(size))/float64(size)
			require.Zero(t, got%256, "%d bytes", size)
			switch {
			case size <= 2048:
				require.Equal(t, max(least, uint64(size+255)/256*256), got, "%d bytes", size)
			case size <= 32<<10:
				require.LessOrEqual(t, over, 0.125, "%d bytes", size)
			default:
				require.LessOrEqual(t, over, 0.016, "%d bytes", size)
			}
			b.Release()
		}
	}
	t.Run("host", func(t *testing.T) { check(t, memmgr.Host(), 256) })
	t.Run("USM", func(t *testing.T) {
		check(t, testsycl.USM(t, openSYCL(t).DefaultQueue(), syclobj.USMShared), 512)
	})
}
