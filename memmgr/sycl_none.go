//go:build !cgo || !linux

package memmgr

import (
	"errors"

	"github.com/usmbridge/usmbridge/syclobj"
)

func usmAlloc(*syclobj.Place, uintptr, uintptr) (uintptr, error) { return 0, errors.ErrUnsupported }

func usmFree(*syclobj.Place, uintptr) error { return errors.ErrUnsupported }

// tryDiscard has no SYCL memory to try.
func (r *usmResource) tryDiscard() error {
	if r.err != nil {
		return r.err
	}
	return noPages("built without SYCL")
}
