//go:build !cgo || !linux

package sysmem

import (
	"errors"

	"github.com/usmbridge/usmbridge/syclobj"
)

// AllocUSM fails.
func AllocUSM(*syclobj.Place, uintptr, uintptr) (uintptr, error) { return 0, errors.ErrUnsupported }

// FreeUSM frees memory of AllocUSM.
func FreeUSM(*syclobj.Place, uintptr) error { return errors.ErrUnsupported }
