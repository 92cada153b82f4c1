package python

import (
	"fmt"
	"math/big"
	"reflect"
	"runtime"
)

// Tuple converts to a Python tuple, where other slices become lists; Value returns
// tuples as this type.
type Tuple []any

// ConversionError is a value that does not fit the other language's type.
type ConversionError struct {
	From, To string // types, "chan int" and "Python object"
	Reason   string // may be empty
}

// Error names both types and the reason.
func (e *ConversionError) Error() string {
	s := fmt.Sprintf("python: cannot convert %s to %s", e.From, e.To)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// New converts a Go value to a new Python object:
//
//	nil                           None
//	bool                          bool
//	integers, *big.Int            int
//	floats                        float
//	complex                       complex
//	string                        str
//	[]byte                        bytes (copied)
//	slices, arrays                list
//	Tuple                         tuple
//	maps                          dict
//	*Object                       the same object
//	Func                          a function
//	error                         an exception instance
//
// and named types and pointers to these by what they are. Other types are a
// *ConversionError.
func New(v any) (*Object, error) {
	p, err := convert(v)
	if err != nil {
		return nil, err
	}
	return own(p), nil
}

// take returns the new reference of a result.
func (r ret) take() (ptr, error) {
	if r.code != codeOK {
		return nil, r.err()
	}
	return r.val, nil
}

// constant returns a new reference to None, True or False.
func constant(p ptr) (ptr, error) {
	if r := opIncref(p); r.code != codeOK {
		return nil, r.err()
	}
	return p, nil
}

// convert returns a new reference.
func convert(v any) (ptr, error) {
	switch v := v.(type) {
	case nil:
		return constant(opNone())
	case *Object:
		if v == nil {
			return constant(opNone())
		}
		defer runtime.KeepAlive(v)
		return constant(v.ptr())
	case bool:
		if v {
			return constant(opTrue())
		}
		return constant(opFalse())
	case int:
		return opFromInt(int64(v)).take()
	case int64:
		return opFromInt(v).take()
	case float64:
		return opFromFloat(v).take()
	case string:
		return opFromText(v).take()
	case []byte:
		return opFromBytes(v).take()
	case Tuple:
		return convertSlice(reflect.ValueOf(v), true)
	case *big.Int:
		if v == nil {
			return constant(opNone())
		}
		return opFromDigits(v.String()).take()
	case Func:
		return newFunction("", "", v)
	case func(Args) (any, error):
		return newFunction("", "", v)
	case error:
		return exceptionOf(v)
	}
	return convertReflect(reflect.ValueOf(v))
}

func convertReflect(v reflect.Value) (ptr, error) {
	switch v.Kind() {
	case reflect.Bool:
		return convert(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return opFromInt(v.Int()).take()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return opFromUint(v.Uint()).take()
	case reflect.Float32, reflect.Float64:
		return opFromFloat(v.Float()).take()
	case reflect.Complex64, reflect.Complex128:
		return opFromComplex(v.Complex()).take()
	case reflect.String:
		return opFromText(v.String()).take()
	case reflect.Slice:
		if v.IsNil() {
			return opFromList(nil, false).take()
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return opFromBytes(v.Bytes()).take()
		}
		return convertSlice(v, false)
	case reflect.Array:
		return convertSlice(v, false)
	case reflect.Map:
		return convertMap(v)
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return constant(opNone())
		}
		return convert(v.Elem().Interface())
	}
	return nil, &ConversionError{From: v.Type().String(), To: "a Python object"}
}

// atOnce runs f with the GIL held throughout, so that a container is converted
// without handing the lock around between its elements.
func atOnce(f func() (ptr, error)) (p ptr, err error) {
	err = with(func() error {
		p, err = f()
		return err
	})
	return p, err
}

func convertSlice(v reflect.Value, tuple bool) (ptr, error) {
	return atOnce(func() (ptr, error) {
		refs := make([]ptr, 0, v.Len())
		for i := range v.Len() {
			p, err := convert(v.Index(i).Interface())
			if err != nil {
				dropAll(refs)
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
			refs = append(refs, p)
		}
		return opFromList(refs, tuple).take()
	})
}

func convertMap(v reflect.Value) (ptr, error) {
	return atOnce(func() (ptr, error) {
		refs := make([]ptr, 0, 2*v.Len())
		for it := v.MapRange(); it.Next(); {
			for _, part := range []reflect.Value{it.Key(), it.Value()} {
				p, err := convert(part.Interface())
				if err != nil {
					dropAll(refs)
					return nil, fmt.Errorf("key %v: %w", it.Key(), err)
				}
				refs = append(refs, p)
			}
		}
		return opFromDict(refs).take()
	})
}
