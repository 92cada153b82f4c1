// Package sysmem has the memory of the system: pages of the process, and unified shared memory of the SYCL runtime.
package sysmem

import (
	"errors"
	"fmt"
	"os"
)

// PageSize is the size of a page in bytes.
var PageSize = uintptr(os.Getpagesize())

// WholePages returns the range of whole pages inside a range; bytes is 0 if there are none.
func WholePages(address, size uintptr) (from, bytes uintptr) {
	from = RoundUp(address, PageSize)
	end := (address + size) &^ (PageSize - 1)
	if from >= end {
		return from, 0
	}
	return from, end - from
}

// noPages returns the error of memory whose pages cannot be returned.
func noPages(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, fmt.Sprintf(format, args...))
}

// RoundUp rounds n up to a multiple of unit, a power of two.
func RoundUp(n, unit uintptr) uintptr { return (n + unit - 1) &^ (unit - 1) }
