//go:build !cgo

package main

import (
	"errors"
	"fmt"
)

// callEnergy returns errors.ErrUnsupported without cgo.
func callEnergy(uintptr, []float64) (float64, error) {
	return 0, fmt.Errorf("calling machine code needs cgo: %w", errors.ErrUnsupported)
}
