//go:build !cgo || !linux

package pymodule

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

var errUnsupported = fmt.Errorf("pymodule: the Python module needs Linux and cgo: %w", errors.ErrUnsupported)

// InitFunc returns nil on this platform.
func InitFunc() unsafe.Pointer { return nil }

// Register returns errors.ErrUnsupported on this platform.
func Register(...Option) error { return errUnsupported }

// ToPython returns errors.ErrUnsupported on this platform.
func ToPython(*usmarray.Array) (*python.Object, error) { return nil, errUnsupported }

// FromPython returns errors.ErrUnsupported on this platform.
func FromPython(*python.Object) (*usmarray.Array, error) { return nil, errUnsupported }
