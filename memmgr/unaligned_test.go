//go:build linux && cgo

package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testfaults"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// TestUnalignedDriver: USM and pools over it work with drivers that ignore or refuse alignments. No request is
// refused for lack of memory.
func TestUnalignedDriver(t *testing.T) {
	for name, variables := range testfaults.Unaligned {
		t.Run(name, func(t *testing.T) {
			if testfaults.Child(t, 1, variables...) == nil {
				return
			}
			rt := openSYCL(t)
			for _, kind := range kinds {
				usm := func(t testing.TB) memmgr.Resource {
					r := memmgr.USM(rt.DefaultQueue(), kind)
					t.Cleanup(func() { require.NoError(t, memmgr.Close(r)) })
					return r
				}
				memtest.Run(t, usm, memtest.Options{})
				memtest.Run(t, func(t testing.TB) memmgr.Resource {
					p := memmgr.NewPool(usm(t))
					t.Cleanup(func() { require.NoError(t, p.Close()) })
					return p
				}, memtest.Options{})
				manyOf3MiB(t, usm(t))
			}
		})
	}
}

func manyOf3MiB(t *testing.T, from memmgr.Resource) {
	p := memmgr.NewPool(from)
	var held []memmgr.Buffer
	for range 40 {
		b, err := memmgr.New(p, memmgr.Request{Size: 3 << 20})
		require.NoError(t, err)
		held = append(held, b)
	}
	for _, b := range held {
		b.Release()
	}
	require.NoError(t, p.Close())
}
