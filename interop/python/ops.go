package python

import (
	"fmt"
	"unsafe"
)

// ptr is a PyObject* (or other C pointer) without its type.
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

// Codes of ret, as USMB_PYE_*; codeUnsupported is Go's own.
const (
	codeOK          = 0
	codeException   = 1
	codeNone        = 2
	codeGone        = 3
	codeChild       = 4
	codeUnsupported = -1
)

// Kinds of ret, as USMB_PYK_*.
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

// Arguments of opText and opErrorPart, as USMB_PYT_* and USMB_PYX_*.
const (
	textValue = iota
	textStr
	textRepr
	textType
	textHex
)

const (
	partType = iota
	partMessage
	partTraceback
	partLineage
)

// Bits of the num of opCallContext, as USMB_CALL_*: what became of an interrupt.
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

// err turns the result into a Go error; an exception becomes an *Error.
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

// object wraps the new reference of a result.
func (r ret) object() (*Object, error) {
	if r.code != codeOK {
		return nil, r.err()
	}
	return own(r.val), nil
}
