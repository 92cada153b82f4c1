//go:build !cgo || !linux

package segment

import "github.com/usmbridge/usmbridge/memmgr"

// tryOverlay has no SYCL memory to try.
func tryOverlay(memmgr.Resource) error { return cannot("built without SYCL") }
