//go:build linux && cgo

package syclobj

import "time"

// SetPythonTimeouts sets both time limits of the search by python3.
func SetPythonTimeouts(d time.Duration) { pythonTimeout, pythonPipeDelay = d, d }
