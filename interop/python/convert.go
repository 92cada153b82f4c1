package python

import (
	"fmt"
	"math/big"
	"reflect"
	"runtime"

	"github.com/usmbridge/usmbridge/interop/internal/values"
)

// Tuple converts to a Python tuple, where other slices become lists; Value returns
// tuples as this type.
type Tuple []any

// ConversionError is a value that does not fit the other language's type.
type ConversionError struct {
	From, To string // types, "chan int" and "a Python object"
	Err      error  // the reason: ErrCycle, ErrTooDeep, one in words, or nil
}

// Error names both types and the reason.
func (e *ConversionError) Error() string {
	s := fmt.Sprintf("python: cannot convert %s to %s", e.From, e.To)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the reason.
func (e *ConversionError) Unwrap() error { return e.Err }

// Reasons of a *ConversionError, to be tested with errors.Is.
var (
	// ErrCycle is the reason for a container that contains itself. The text says where.
	ErrCycle = values.ErrCycle
	// ErrTooDeep is the reason for containers in containers more than 1000 deep: as far as
	// Python's own functions follow them.
	ErrTooDeep = values.ErrTooDeep
)

// take returns the new reference of a result.
func (r ret) take() (ptr, error) {
	if r.code != codeOK {
		return nil, r.err()
	}
	return r.val, nil
}

// constant returns a new reference to an object that somebody keeps alive: None, True.
func constant(p ptr) (ptr, error) {
	if r := opIncref(p); r.code != codeOK {
		return nil, r.err()
	}
	return p, nil
}

// convert returns a new reference to the Python object of a Go value.
func convert(v any) (ptr, error) {
	if p, ok, err := convertPlain(v); ok {
		return p, err
	}
	return convertWords(v)
}

// convertWords converts any value, with one entry into C for all that is in it.
func convertWords(v any) (ptr, error) {
	c := &conversion{}
	defer c.end()
	c.encoder.Rules, c.encoder.Addresses = c, true
	if err := c.encoder.Encode(v); err != nil {
		return nil, err
	}
	return opFromWords(c.encoder.Words).take()
}

// convertPlain converts the usual values that hold no others, with one entry into C. ok is false for
// other values.
func convertPlain(v any) (p ptr, ok bool, err error) {
	switch v := v.(type) {
	case nil:
		p, err = constant(opNone())
	case *Object:
		if v == nil {
			p, err = constant(opNone())
			break
		}
		p, err = v.newReference("Retain")
	case bool:
		if v {
			p, err = constant(opTrue())
		} else {
			p, err = constant(opFalse())
		}
	case int:
		p, err = opFromInt(int64(v)).take()
	case int64:
		p, err = opFromInt(v).take()
	case float64:
		p, err = opFromFloat(v).take()
	case string:
		p, err = opFromText(v).take()
	case []byte:
		p, err = opFromBytes(v).take()
	case *big.Int:
		if v == nil {
			p, err = constant(opNone())
			break
		}
		p, err = opFromHex(v.Text(16)).take()
	case Func:
		p, err = newFunction("", "", v)
	case func(Args) (any, error):
		p, err = newFunction("", "", v)
	case error:
		p, err = exceptionOf(v)
	default:
		return nil, false, nil
	}
	return p, true, err
}

// conversion writes a value as words, of which C makes the object. It implements values.Rules.
type conversion struct {
	encoder values.Encoder
	refs    []ptr // objects in the words
	held    bool  // whether it holds the GIL
	entered int64
}

// end releases the objects in the words, and the GIL.
func (c *conversion) end() {
	dropAll(c.refs)
	if c.held {
		opLeave(c.entered)
		runtime.UnlockOSThread()
	}
}

// hold acquires the GIL until end, so that the objects of a container are made without handing the
// GIL around between them.
func (c *conversion) hold() error {
	if c.held {
		return nil
	}
	runtime.LockOSThread()
	r := opEnter()
	if r.code != codeOK {
		runtime.UnlockOSThread()
		return r.err()
	}
	c.held, c.entered = true, r.num
	return nil
}

// Write writes tuples, and the objects of values that mean something in this process only.
func (c *conversion) Write(e *values.Encoder, v any) (known bool, err error) {
	switch v := v.(type) {
	case Tuple:
		return true, e.Sequence(values.Tuple, v, typeTuple)
	case *Object, string, []byte, error, Func, func(Args) (any, error):
		return true, c.object(func() (ptr, error) {
			p, _, err := convertPlain(v)
			return p, err
		})
	}
	if f := reflect.ValueOf(v); f.Kind() == reflect.Func {
		return true, c.object(func() (ptr, error) { return function(f) })
	}
	return false, nil
}

// function returns a new reference to a Python function of a Go one of any type.
func function(f reflect.Value) (ptr, error) {
	if f.IsNil() {
		return constant(opNone())
	}
	return newFunction(nameOf(f), f.Type().String(), typedFunc(f))
}

// object writes the address of an object.
func (c *conversion) object(convert func() (ptr, error)) error {
	if err := c.hold(); err != nil {
		return err
	}
	p, err := convert()
	if err != nil {
		return err
	}
	c.refs = append(c.refs, p)
	return c.encoder.Object(p)
}

// Refuse returns a *ConversionError.
func (c *conversion) Refuse(typ string, reason error) error {
	return &ConversionError{From: typ, To: "a Python object", Err: reason}
}

var typeTuple = reflect.TypeFor[Tuple]()
