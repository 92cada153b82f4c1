//go:build !linux || !cgo

// Package cuda has the functions for memory of SYCL's CUDA backend. Without cgo there is no SYCL.
package cuda

import "github.com/usmbridge/usmbridge/syclobj"

// Ordinal returns syclobj.ErrNoCUDA.
func Ordinal(*syclobj.Place) (int32, error) { return 0, syclobj.ErrNoCUDA }

// Place returns syclobj.ErrUnsupported.
func Place(int32, uintptr, uintptr) (*syclobj.Place, error) { return nil, syclobj.ErrUnsupported }
