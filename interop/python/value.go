package python

import (
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"runtime"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/internal/values"
)

// Value converts a Python object to a Go value:
//
//	None                  nil
//	bool                  bool
//	int                   int64, or *big.Int if it does not fit
//	float                 float64
//	complex               complex128
//	str                   string
//	bytes, bytearray      []byte (copied)
//	list                  []any
//	tuple                 Tuple
//	dict                  map[string]any, or map[any]any if a key is not a str
//
// Subclasses are converted as their base class. Any other object is returned as an
// owned *Object, also inside containers. A dict key that cannot be a Go map key (a
// tuple), an object that contains itself (ErrCycle) and an object nested too deeply
// (ErrTooDeep) are a *ConversionError. Its text names the position in the object, for
// example value[2]["a"].
func (o *Object) Value() (v any, err error) {
	defer runtime.KeepAlive(o)
	err = with(func() error {
		var r reader
		v, err = r.value(o.ptr("Value"))
		return r.path.Locate(err)
	})
	return v, err
}

// reader converts objects to Go values. After an error, path is its position.
type reader struct{ path values.Path }

// enter adds a container to the path. It fails for a cycle or too deep nesting.
func (n *reader) enter(p ptr, from, to string) error {
	if err := n.path.Enter(p, 0, nil); err != nil {
		return &ConversionError{From: from, To: to, Err: err}
	}
	return nil
}

// value converts one object.
func (n *reader) value(p ptr) (any, error) {
	r := opView(p)
	if r.code != codeOK {
		return nil, r.err()
	}
	switch r.kind {
	case kindNone:
		return nil, nil
	case kindBool:
		return r.num != 0, nil
	case kindInt:
		return r.num, nil
	case kindBigInt:
		return bigInt(p)
	case kindFloat:
		return r.re, nil
	case kindComplex:
		return complex(r.re, r.im), nil
	case kindStr:
		s, t := opText(p, textValue)
		return s, t.err()
	case kindBytes, kindByteArray:
		return copyBytes(r), nil
	case kindList:
		return n.list(p, int(r.num))
	case kindTuple:
		list, err := n.list(p, int(r.num))
		return Tuple(list), err
	case kindDict:
		return n.dict(p, int(r.num))
	default:
		if _, err := constant(p); err != nil {
			return nil, err
		}
		return own(p), nil
	}
}

func copyBytes(r ret) []byte {
	b := make([]byte, r.num)
	copy(b, unsafe.Slice((*byte)(r.val), r.num))
	return b
}

func bigInt(p ptr) (*big.Int, error) {
	s, r := opText(p, textHex)
	if r.code != codeOK {
		return nil, r.err()
	}
	n, ok := new(big.Int).SetString(s, 0)
	if !ok {
		return nil, &ConversionError{From: "int", To: "*big.Int", Err: fmt.Errorf("hex() of it is %q", s)}
	}
	return n, nil
}

func (n *reader) list(p ptr, length int) ([]any, error) {
	refs := make([]ptr, length)
	if r := opItems(p, refs); r.code != codeOK {
		return nil, r.err()
	}
	defer dropAll(refs)
	if err := n.enter(p, "a list or tuple", "a Go slice"); err != nil {
		return nil, err
	}
	list := make([]any, length)
	for i, e := range refs {
		n.path.AtIndex(i)
		v, err := n.value(e)
		if err != nil {
			values.Release(list)
			return nil, err
		}
		list[i] = v
	}
	n.path.Leave()
	return list, nil
}

func (n *reader) dict(p ptr, length int) (any, error) {
	refs := make([]ptr, 2*length)
	if r := opDictItems(p, refs); r.code != codeOK {
		return nil, r.err()
	}
	defer dropAll(refs)
	if err := n.enter(p, "a dict", "a Go map"); err != nil {
		return nil, err
	}
	keys, vals := make([]any, 0, length), make([]any, 0, length)
	for i := range length {
		k, v, err := n.pair(i, refs[2*i], refs[2*i+1])
		if err != nil {
			values.Release(keys)
			values.Release(vals)
			return nil, err
		}
		keys, vals = append(keys, k), append(vals, v)
	}
	n.path.Leave()
	return mapOf(keys, vals), nil
}

// pair converts the key and the value of entry i of a dict.
func (n *reader) pair(i int, key, val ptr) (k, v any, err error) {
	n.path.AtKey(i)
	if k, err = n.value(key); err != nil {
		return nil, nil, err
	}
	if k != nil && !reflect.TypeOf(k).Comparable() {
		values.Release(k)
		return nil, nil, &ConversionError{From: "a dict", To: "a Go map", Err: fmt.Errorf("a key is a %T", k)}
	}
	n.path.AtEntry(k)
	if v, err = n.value(val); err != nil {
		values.Release(k)
	}
	return k, v, err
}

// mapOf returns a map[string]any if all keys are strings, otherwise a map[any]any.
func mapOf(keys, vals []any) any {
	named := make(map[string]any, len(keys))
	for i, k := range keys {
		name, ok := k.(string)
		if !ok {
			m := make(map[any]any, len(keys))
			for i, k := range keys {
				m[k] = vals[i]
			}
			return m
		}
		named[name] = vals[i]
	}
	return named
}

// Int returns the result of the object's __index__, which a float lacks. The error is
// an OverflowError if it does not fit int64.
func (o *Object) Int() (int64, error) {
	defer runtime.KeepAlive(o)
	r := opIndex(o.ptr("Int"))
	return r.num, r.err()
}

// Float returns the result of the object's __float__ or __index__.
func (o *Object) Float() (float64, error) {
	defer runtime.KeepAlive(o)
	r := opFloat(o.ptr("Float"))
	return r.re, r.err()
}

// Text returns the contents of a str. The error is a TypeError for other objects.
func (o *Object) Text() (string, error) { return o.text("Text", textValue) }

// Bytes returns a copy of the contents of a bytes or bytearray object. The error is a
// *ConversionError for other objects.
func (o *Object) Bytes() ([]byte, error) {
	var b []byte
	err := with(func() error {
		r := opView(o.ptr("Bytes"))
		if r.code != codeOK {
			return r.err()
		}
		if r.kind != kindBytes && r.kind != kindByteArray {
			return o.mismatch("[]byte")
		}
		b = copyBytes(r)
		return nil
	})
	runtime.KeepAlive(o)
	return b, err
}

func (o *Object) mismatch(to string) error {
	t, err := o.Type()
	if err != nil {
		return err
	}
	return &ConversionError{From: "Python " + t, To: to}
}

// As converts a Python object to the Go type T. It converts the result of Value to T:
// integers are checked for range, an int converts to a floating-point type, lists and
// tuples convert to slices and to arrays of their length, and dicts to maps. If T is
// *Object, the result is owned. The error is a *ConversionError if the value does not
// fit T.
func As[T any](o *Object) (T, error) {
	var t T
	if p, ok := any(&t).(**Object); ok {
		var err error
		*p, err = o.Retain()
		return t, err
	}
	_, err := decode(reflect.ValueOf(&t).Elem(), o)
	return t, err
}

// decode stores the value of an object in dst and returns that value. dst owns the
// Objects in it; after an error they are released.
func decode(dst reflect.Value, o *Object) (any, error) {
	v, err := o.Value()
	if err != nil {
		return nil, err
	}
	if err := fit(dst, v); err != nil {
		values.Release(v)
		return nil, err
	}
	return v, nil
}

// fit stores v, a result of Value, in dst.
func fit(dst reflect.Value, v any) error {
	if v == nil {
		switch dst.Kind() {
		case reflect.Interface, reflect.Pointer, reflect.Slice, reflect.Map:
			dst.SetZero()
			return nil
		}
		return &ConversionError{From: "None", To: dst.Type().String()}
	}
	src := reflect.ValueOf(v)
	if src.Type().AssignableTo(dst.Type()) {
		dst.Set(src)
		return nil
	}
	bad := func(reason string) error {
		err := &ConversionError{From: fmt.Sprintf("%T", v), To: dst.Type().String()}
		if reason != "" {
			err.Err = errors.New(reason)
		}
		return err
	}
	switch v := v.(type) {
	case int64:
		return fitInt(dst, v, bad)
	case *big.Int:
		if dst.CanUint() && v.IsUint64() && !dst.OverflowUint(v.Uint64()) {
			dst.SetUint(v.Uint64())
			return nil
		}
		return bad(v.String() + " does not fit")
	case float64:
		if dst.CanFloat() {
			if dst.OverflowFloat(v) {
				return bad(fmt.Sprintf("%g does not fit", v))
			}
			dst.SetFloat(v)
			return nil
		}
	case complex128:
		if dst.CanComplex() {
			if dst.OverflowComplex(v) {
				return bad(fmt.Sprintf("%g does not fit", v))
			}
			dst.SetComplex(v)
			return nil
		}
	case []any:
		return fitSlice(dst, v, bad)
	case Tuple:
		return fitSlice(dst, v, bad)
	case map[string]any, map[any]any:
		return fitMap(dst, src, bad)
	}
	// A named type of the same kind, such as type Name string.
	if src.Kind() == dst.Kind() && src.Type().ConvertibleTo(dst.Type()) {
		dst.Set(src.Convert(dst.Type()))
		return nil
	}
	return bad("")
}

func fitInt(dst reflect.Value, v int64, bad func(string) error) error {
	switch {
	case dst.CanInt() && !dst.OverflowInt(v):
		dst.SetInt(v)
	case dst.CanUint() && v >= 0 && !dst.OverflowUint(uint64(v)):
		dst.SetUint(uint64(v))
	case dst.CanFloat():
		dst.SetFloat(float64(v))
	case dst.Type() == reflect.TypeFor[*big.Int]():
		dst.Set(reflect.ValueOf(big.NewInt(v)))
	case dst.CanInt() || dst.CanUint():
		return bad(fmt.Sprintf("%d does not fit", v))
	default:
		return bad("")
	}
	return nil
}

func fitSlice(dst reflect.Value, list []any, bad func(string) error) error {
	switch dst.Kind() {
	case reflect.Slice:
		dst.Set(reflect.MakeSlice(dst.Type(), len(list), len(list)))
	case reflect.Array:
		if dst.Len() != len(list) {
			return bad(fmt.Sprintf("it has %d elements", len(list)))
		}
	default:
		return bad("")
	}
	for i, v := range list {
		if err := fit(dst.Index(i), v); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

func fitMap(dst, src reflect.Value, bad func(string) error) error {
	if dst.Kind() != reflect.Map {
		return bad("")
	}
	t := dst.Type()
	m := reflect.MakeMapWithSize(t, src.Len())
	for it := src.MapRange(); it.Next(); {
		k, v := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		if err := fit(k, it.Key().Interface()); err != nil {
			return fmt.Errorf("key %v: %w", it.Key(), err)
		}
		if err := fit(v, it.Value().Interface()); err != nil {
			return fmt.Errorf("value of %v: %w", it.Key(), err)
		}
		m.SetMapIndex(k, v)
	}
	dst.Set(m)
	return nil
}
