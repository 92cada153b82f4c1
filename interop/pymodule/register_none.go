//go:build !cgo || !linux

package pymodule

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

// errUnsupported matches errors.ErrUnsupported.
var errUnsupported = fmt.Errorf("pymodule: the Python module needs Linux and cgo: %w", errors.ErrUnsupported)

// InitFunc returns nil: there is no module without Linux and cgo.
func InitFunc() unsafe.Pointer { return nil }

// Register reports that the module needs Linux and cgo.
func Register(...Option) error { return errUnsupported }

// ToPython reports that the module needs Linux and cgo.
func ToPython(*usmarray.Array) (*python.Object, error) { return nil, errUnsupported }

// FromPython reports that the module needs Linux and cgo.
func FromPython(*python.Object) (*usmarray.Array, error) { return nil, errUnsupported }
