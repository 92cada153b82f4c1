//go:build linux && cgo

package memmgr_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv/testfaults"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// TestUnalignedDriver: USM and pools over it work with drivers that ignore or refuse alignments. No request is
// refused for lack of memory.
func TestUnalignedDriver(t *testing.T) {
	for name, variables := range testfaults.Unaligned {
		t.Run(name, func(t *testing.T) {
			testfaults.Child(t, 1, variables, func(*testfaults.Faults) {
				rt := openSYCL(t)
				for _, kind := range kinds {
					usm := func(t testing.TB) memmgr.Resource {
						return testsycl.USM(t, rt.DefaultQueue(), kind)
					}
					memtest.Run(t, usm, memtest.Options{})
					memtest.Run(t, func(t testing.TB) memmgr.Resource { return newPool(t, usm(t)) }, memtest.Options{})
					manyOf3MiB(t, usm(t))
				}
			})
		})
	}
}

func manyOf3MiB(t *testing.T, from memmgr.Resource) {
	p := newPool(t, from)
	releaseAll(newMany(t, p, 40, 3<<20))
}
