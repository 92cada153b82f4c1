package pymodule

import (
	"context"
	"errors"

	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// kind is the Python exception class of an error, as USMB_ERR_* in C.
type kind int32

const (
	kindValue kind = iota + 1
	kindType
	kindBuffer
	kindMemory
	kindRuntime
	kindOverflow
	kindTimeout
	kindConnection
	kindKey
	kindReference
	kindRaised
)

// errInterrupted is returned by calls that a signal handler of Python ended by an exception.
var errInterrupted = errors.New("interrupted by an exception of a signal handler")

var kinds = []struct {
	target error
	kind   kind
}{
	{errInterrupted, kindRaised},
	{context.DeadlineExceeded, kindTimeout},
	{share.ErrAddress, kindConnection},
	{share.ErrRefused, kindConnection},
	{share.ErrClosed, kindConnection},
	{share.ErrName, kindKey},
	{share.ErrStale, kindReference},
	{share.ErrHandle, kindValue},
	{share.ErrNotShared, kindBuffer},
	{memmgr.ErrOutOfMemory, kindMemory},
	{usmarray.ErrOutOfMemory, kindMemory},
	{usmarray.ErrType, kindType},
	{usmarray.ErrExchange, kindBuffer},
	{usmarray.ErrNotHostReadable, kindBuffer},
	{memmgr.ErrNotHostReadable, kindBuffer},
	{usmarray.ErrLayout, kindValue},
	{usmarray.ErrInterface, kindValue},
	{usmarray.ErrNotUSM, kindValue},
	{usmarray.ErrReadOnly, kindValue},
	{memmgr.ErrRequest, kindValue},
	{syclobj.ErrArgument, kindValue},
	{syclobj.ErrNoDevice, kindValue},
	{syclobj.ErrDeviceID, kindValue},
	{syclobj.ErrUnsupportedUSM, kindValue},
	{syclobj.ErrNoSYCL, kindValue},
}

// kindOf returns the kind of an error.
func kindOf(err error) kind {
	for _, k := range kinds {
		if errors.Is(err, k.target) {
			return k.kind
		}
	}
	return kindRuntime
}
