//go:build !cgo || !linux

package guard

import "errors"

// Supported reports whether this build has a guard.
const Supported = false

// Add fails with errors.ErrUnsupported: Go cannot handle signals on threads it does not know.
func Add(uintptr, uintptr, bool) (Range, error) { return Range{}, errors.ErrUnsupported }

// Lost reports whether a page of the range was replaced by zeros.
func (Range) Lost() bool { return false }

// Remove does nothing.
func (Range) Remove() {}

// Keep does nothing.
func Keep() error { return nil }
