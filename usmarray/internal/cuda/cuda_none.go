//go:build !linux || !cgo

// Package cuda has the functions for memory of SYCL's CUDA backend. Without cgo there is no SYCL.
package cuda

import "github.com/usmbridge/usmbridge/syclobj"

// AnyDevice stands for the device of memory whose ordinal is not known.
const AnyDevice = -2

// Ordinal returns syclobj.ErrNoCUDA.
func Ordinal(*syclobj.Place) (int32, error) { return 0, syclobj.ErrNoCUDA }

// Place returns syclobj.ErrUnsupported.
func Place(int32, uintptr, uintptr) (*syclobj.Place, error) { return nil, syclobj.ErrUnsupported }
