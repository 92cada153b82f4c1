//go:build !linux || !cgo

package syclobj

import "time"

// SetPythonTimeouts does nothing: this build does not search for a library.
func SetPythonTimeouts(time.Duration) {}
