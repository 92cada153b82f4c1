//go:build !cgo || !linux

package segment

import "github.com/usmbridge/usmbridge/memmgr"

func tryOverlay(memmgr.Resource) error { return cannot("built without SYCL") }
