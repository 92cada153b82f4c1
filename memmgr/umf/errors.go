//go:build cgo && linux

package umf

import "errors"

// errRefused is the reason in an out-of-memory error of a UMF pool.
var errRefused = errors.New("UMF's pool gave no memory")
