//go:build !cgo || !linux

package guard

import "errors"

// Supported reports whether there is a guard in this build.
const Supported = false

// Add fails: a handler of signals that runs on any thread cannot be written in Go.
func Add(uintptr, uintptr, bool) (Range, error) { return Range{}, errors.ErrUnsupported }

// Lost reports whether a page of the range was replaced by zeros.
func (Range) Lost() bool { return false }

// Remove ends the guarding.
func (Range) Remove() {}

// Keep has nothing to put back.
func Keep() error { return nil }
