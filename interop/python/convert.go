package python

import (
	"errors"
	"fmt"
	"math/big"
	"reflect"
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

// convert returns a new reference.
func convert(v any) (ptr, error) {
	if p, ok, err := convertPlain(v); ok {
		return p, err
	}
	var n nesting
	p, err := n.convert(v)
	return p, n.locate(err)
}

// convertPlain converts what holds nothing else; other values are not ok.
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

// convert returns a new reference; after an error n is where it arose.
func (n *nesting) convert(v any) (ptr, error) {
	if p, ok, err := convertPlain(v); ok {
		return p, err
	}
	return n.convertReflect(reflect.ValueOf(v))
}

func (n *nesting) convertReflect(v reflect.Value) (ptr, error) {
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
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return opFromBytes(v.Bytes()).take()
		}
		return n.convertSlice(v, identity{v.UnsafePointer(), v.Len(), v.Type()})
	case reflect.Array:
		return n.convertSlice(v, identity{})
	case reflect.Map:
		return n.convertMap(v)
	case reflect.Struct:
		return nil, &ConversionError{From: v.Type().String(), To: pythonObject, Err: errors.New("pass a map of its fields")}
	case reflect.Func:
		if v.IsNil() {
			return constant(opNone())
		}
		return newFunction(nameOf(v), v.Type().String(), typedFunc(v))
	case reflect.Pointer:
		if v.IsNil() {
			return constant(opNone())
		}
		return n.convertTarget(v)
	}
	return nil, &ConversionError{From: v.Type().String(), To: pythonObject}
}

// pythonObject is what a ConversionError calls the aim of Interpreter.New.
const pythonObject = "a Python object"

// atOnce runs f with the GIL held throughout, so that a container is converted
// without handing the lock around between its elements.
func atOnce(f func() (ptr, error)) (p ptr, err error) {
	err = with(func() error {
		p, err = f()
		return err
	})
	return p, err
}

func (n *nesting) convertTarget(v reflect.Value) (ptr, error) {
	if err := n.enter(identity{v.UnsafePointer(), 1, v.Type()}, v.Type().String(), pythonObject); err != nil {
		return nil, err
	}
	n.at(inTarget, nil)
	p, err := n.convert(v.Elem().Interface())
	if err == nil {
		n.leave()
	}
	return p, err
}

func (n *nesting) convertSlice(v reflect.Value, id identity) (ptr, error) {
	if err := n.enter(id, v.Type().String(), pythonObject); err != nil {
		return nil, err
	}
	return atOnce(func() (ptr, error) {
		refs := make([]ptr, 0, v.Len())
		for i := range v.Len() {
			n.at(inElement, i)
			p, err := n.convert(v.Index(i).Interface())
			if err != nil {
				dropAll(refs)
				return nil, err
			}
			refs = append(refs, p)
		}
		n.leave()
		return opFromList(refs, v.Type() == reflect.TypeFor[Tuple]()).take()
	})
}

func (n *nesting) convertMap(v reflect.Value) (ptr, error) {
	if err := n.enter(identity{v.UnsafePointer(), 1, v.Type()}, v.Type().String(), pythonObject); err != nil {
		return nil, err
	}
	return atOnce(func() (ptr, error) {
		refs := make([]ptr, 0, 2*v.Len())
		for it := v.MapRange(); it.Next(); {
			key := it.Key().Interface()
			for _, part := range [...]struct {
				where place
				value any
			}{{inKey, key}, {inElement, it.Value().Interface()}} {
				n.at(part.where, key)
				p, err := n.convert(part.value)
				if err != nil {
					dropAll(refs)
					return nil, err
				}
				refs = append(refs, p)
			}
		}
		n.leave()
		return opFromDict(refs).take()
	})
}
