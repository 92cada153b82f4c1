package python

import (
	"fmt"
	"unsafe"
)

// ptr is a PyObject* or another C pointer.
type ptr = unsafe.Pointer

// ret is the Go side of usmb_pyret.
type ret struct {
	val    ptr
	num    int64
	re, im float64
	exc    ptr
	code   int
	kind   int
}

// Values of ret.code: USMB_PYE_*, and codeUnsupported, which only Go uses.
const (
	codeOK          = 0
	codeException   = 1
	codeNone        = 2
	codeGone        = 3
	codeChild       = 4
	codeUnsupported = -1
)

// Values of ret.kind, as USMB_PYK_*.
const (
	kindOther = iota
	kindNone
	kindBool
	kindInt
	kindBigInt
	kindFloat
	kindComplex
	kindStr
	kindBytes
	kindByteArray
	kindList
	kindTuple
	kindDict
)

// Texts that opText returns, as USMB_PYT_*.
const (
	textValue = iota
	textStr
	textRepr
	textType
	textHex
)

// Parts of an exception that opErrorPart returns, as USMB_PYX_*.
const (
	partType = iota
	partMessage
	partTraceback
	partLineage
)

// Bits of ret.num of opCallContext, as USMB_CALL_*: the outcome of an interrupt.
const (
	callAsked   = 1
	callUnseen  = 2
	callStopped = 4
)

// Start symbols of opRun, as Py_file_input and Py_eval_input.
const (
	startFile = 257
	startEval = 258
)

// err returns the error of a result. It takes over the exception.
func (r ret) err() error {
	switch r.code {
	case codeOK:
		return nil
	case codeException:
		return newError(r.exc)
	case codeNone:
		return fmt.Errorf("python: %w", ErrNotStarted)
	case codeGone:
		return fmt.Errorf("python: %w", ErrGone)
	case codeChild:
		return fmt.Errorf("python: %w", ErrForked)
	default:
		return errUnsupported
	}
}

// take returns the new reference of a result.
func (r ret) take() (ptr, error) {
	if r.code != codeOK {
		return nil, r.err()
	}
	return r.val, nil
}

// object returns the new reference of a result as an owned Object.
func (r ret) object() (*Object, error) {
	if r.code != codeOK {
		return nil, r.err()
	}
	return own(r.val), nil
}
