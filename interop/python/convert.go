package python

import (
	"fmt"
	"math/big"
	"reflect"
	"runtime"

	"github.com/usmbridge/usmbridge/interop/internal/values"
)

// Tuple converts to a Python tuple. Other slices become lists. Value returns tuples as
// this type.
type Tuple []any

// ConversionError is returned for a value that does not fit the type of the other
// language.
type ConversionError struct {
	From, To string // types, for example "chan int" and "a Python object"
	Err      error  // the reason: ErrCycle, ErrTooDeep, another error, or nil
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

// Reasons of a *ConversionError, for errors.Is.
var (
	// ErrCycle is the reason for a container that contains itself. The text names the position.
	ErrCycle = values.ErrCycle
	// ErrTooDeep is the reason for containers nested more than 1000 deep, the limit of
	// Python's own functions.
	ErrTooDeep = values.ErrTooDeep
)

// constant returns a new reference to p, which the caller keeps alive, as None or True.
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
	c := &conversion{}
	defer c.end()
	c.encoder.Rules, c.encoder.Addresses = c, true
	if err := c.encoder.Encode(v); err != nil {
		return nil, err
	}
	return opFromWords(c.encoder.Words).take()
}

// convertPlain converts the common types that are not containers, with one entry into C.
// ok is false for other types.
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

// conversion encodes a value as words, so that C creates all objects of a container with
// one entry. It implements values.Rules.
type conversion struct {
	encoder values.Encoder
	refs    []ptr // owned objects whose addresses are in the words
	held    bool  // whether the conversion holds the GIL
	entered int64 // the argument of opLeave
}

// end releases refs and the GIL.
func (c *conversion) end() {
	dropAll(c.refs)
	if c.held {
		opLeave(c.entered)
		runtime.UnlockOSThread()
	}
}

// hold acquires the GIL until end, so that it is not released between the objects of a
// container.
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

// Write encodes tuples, and values whose objects must be created before C reads the words.
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

// function returns a new reference to a Python function that calls a Go function of any type.
func function(f reflect.Value) (ptr, error) {
	if f.IsNil() {
		return constant(opNone())
	}
	return newFunction(nameOf(f), f.Type().String(), typedFunc(f))
}

// object encodes the address of the object that convert returns.
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
