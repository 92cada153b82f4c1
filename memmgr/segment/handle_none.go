//go:build !cgo || !linux

package segment

import "github.com/usmbridge/usmbridge/syclobj"

func handleSupport(*syclobj.Place) error { return cannot("built without SYCL") }

func isPadded(uintptr) bool { return false }

func handleOf(*syclobj.Place, uintptr) ([]byte, error) { return nil, cannot("built without SYCL") }

func openHandle(*syclobj.Place, []byte, uintptr) (uintptr, error) {
	return 0, cannot("built without SYCL")
}

func closeHandle(*syclobj.Place, uintptr) error { return nil }
