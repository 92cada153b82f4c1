package values

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"unsafe"
)

// Rules say how an [Encoder] writes values that depend on its use.
type Rules interface {
	// Write writes v if its type is one that the rules know, and reports whether it is. It is
	// called for each value that is not nil, a number, a text, bytes, a []any or a
	// map[string]any, before reflection decides; and for texts and bytes longer than MaxText
	// when the encoder writes addresses.
	Write(e *Encoder, v any) (known bool, err error)

	// Refuse makes the error for a value of a type that cannot be written; reason may be nil.
	Refuse(typ string, reason error) error
}

// MaxText is the length, in bytes, of the longest texts and bytes that are written as words when
// the encoder writes addresses: the copy in words is one more than necessary. Longer ones are for
// the rules, which make Python objects of them.
const MaxText = 4096

// Encoder writes values. Its zero value, with Rules, is ready.
type Encoder struct {
	// Words is what has been written. The caller may give it room.
	Words []uint64

	Rules Rules

	// Grow returns words with room for n more; nil allocates memory of Go.
	Grow func(words []uint64, n int) ([]uint64, error)

	// Addresses allows Object and Array. They must not leave the process.
	Addresses bool

	path Path
}

// Reset removes all values and keeps the room.
func (e *Encoder) Reset() { e.Words, e.path = e.Words[:0], e.path[:0] }

// Encode writes a value. An error says where in v it arose, and leaves the words of a part of v;
// Reset removes them. Errors are those of Rules.Refuse, Rules.Write and Grow.
func (e *Encoder) Encode(v any) error {
	err := e.Value(v)
	if err != nil {
		err = e.path.Locate(err)
		e.path = e.path[:0]
	}
	return err
}

// Arguments writes the arguments of a call: the positional ones, then for each keyword argument
// its name and its value.
func (e *Encoder) Arguments(positional []any, named map[string]any) error {
	for i, v := range positional {
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("argument %d: %w", i+1, err)
		}
	}
	for name, v := range named {
		if err := e.text(Text, name); err != nil {
			return err
		}
		if err := e.Encode(v); err != nil {
			return fmt.Errorf("argument %s: %w", name, err)
		}
	}
	return nil
}

var (
	typeList = reflect.TypeFor[[]any]()
	typeDict = reflect.TypeFor[map[string]any]()
)

// Value writes a value inside of another one. It is for Rules.Write; others call Encode.
func (e *Encoder) Value(v any) error {
	switch v := v.(type) {
	case nil:
		return e.head(None, 0)
	case bool:
		return e.bool(v)
	case int:
		return e.word(Int, uint64(v))
	case int64:
		return e.word(Int, uint64(v))
	case int32:
		return e.word(Int, uint64(v))
	case uint64:
		return e.uint(v)
	case float64:
		return e.word(Float, math.Float64bits(v))
	case float32:
		return e.word(Float, math.Float64bits(float64(v)))
	case complex128:
		return e.complex(v)
	case string:
		return e.text(Text, v)
	case []byte:
		return e.bytes(v)
	case *big.Int:
		return e.big(v)
	case []any:
		return e.Sequence(List, v, typeList)
	case map[string]any:
		return e.dict(v)
	}
	if known, err := e.Rules.Write(e, v); known {
		return err
	}
	return e.reflected(reflect.ValueOf(v))
}

// Sequence writes the elements of a list or tuple. typ is the type of the slice.
func (e *Encoder) Sequence(kind Kind, v []any, typ reflect.Type) error {
	if err := e.path.Enter(unsafe.Pointer(unsafe.SliceData(v)), len(v), typ); err != nil {
		return e.Rules.Refuse(typ.String(), err)
	}
	if err := e.head(kind, len(v)); err != nil {
		return err
	}
	for i, x := range v {
		e.path.AtIndex(i)
		if err := e.Value(x); err != nil {
			return err
		}
	}
	e.path.Leave()
	return nil
}

func (e *Encoder) dict(v map[string]any) error {
	if err := e.path.Enter(reflect.ValueOf(v).UnsafePointer(), 1, typeDict); err != nil {
		return e.Rules.Refuse(typeDict.String(), err)
	}
	at, n := len(e.Words), 0
	if err := e.head(Dict, 0); err != nil {
		return err
	}
	for name, x := range v {
		e.path.AtName(name)
		if err := e.text(Text, name); err != nil {
			return err
		}
		if err := e.Value(x); err != nil {
			return err
		}
		n++
	}
	e.Words[at] = first(Dict, n)
	e.path.Leave()
	return nil
}

// reflected writes values of other types by their kind.
func (e *Encoder) reflected(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		return e.bool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return e.word(Int, uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return e.uint(v.Uint())
	case reflect.Float32, reflect.Float64:
		return e.word(Float, math.Float64bits(v.Float()))
	case reflect.Complex64, reflect.Complex128:
		return e.complex(v.Complex())
	case reflect.String:
		return e.text(Text, v.String())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return e.bytes(v.Bytes())
		}
		return e.elements(v, v.UnsafePointer())
	case reflect.Array:
		return e.elements(v, nil)
	case reflect.Map:
		return e.entries(v)
	case reflect.Pointer:
		return e.target(v)
	case reflect.Struct:
		return e.Rules.Refuse(v.Type().String(), errStruct)
	}
	return e.Rules.Refuse(v.Type().String(), nil)
}

var errStruct = errors.New("pass a map of its fields")

func (e *Encoder) elements(v reflect.Value, address unsafe.Pointer) error {
	if err := e.path.Enter(address, v.Len(), v.Type()); err != nil {
		return e.Rules.Refuse(v.Type().String(), err)
	}
	if err := e.head(List, v.Len()); err != nil {
		return err
	}
	for i := range v.Len() {
		e.path.AtIndex(i)
		if err := e.Value(v.Index(i).Interface()); err != nil {
			return err
		}
	}
	e.path.Leave()
	return nil
}

func (e *Encoder) entries(v reflect.Value) error {
	if err := e.path.Enter(v.UnsafePointer(), 1, v.Type()); err != nil {
		return e.Rules.Refuse(v.Type().String(), err)
	}
	at, n := len(e.Words), 0
	if err := e.head(Dict, 0); err != nil {
		return err
	}
	for it := v.MapRange(); it.Next(); n++ {
		key := it.Key().Interface()
		e.path.AtKey(key)
		if err := e.Value(key); err != nil {
			return err
		}
		e.path.AtEntry(key)
		if err := e.Value(it.Value().Interface()); err != nil {
			return err
		}
	}
	e.Words[at] = first(Dict, n)
	e.path.Leave()
	return nil
}

func (e *Encoder) target(v reflect.Value) error {
	if v.IsNil() {
		return e.head(None, 0)
	}
	if err := e.path.Enter(v.UnsafePointer(), 1, v.Type()); err != nil {
		return e.Rules.Refuse(v.Type().String(), err)
	}
	e.path.AtTarget()
	if err := e.Value(v.Elem().Interface()); err != nil {
		return err
	}
	e.path.Leave()
	return nil
}

func (e *Encoder) bool(v bool) error {
	if v {
		return e.head(Bool, 1)
	}
	return e.head(Bool, 0)
}

func (e *Encoder) uint(v uint64) error {
	if v <= math.MaxInt64 {
		return e.word(Int, v)
	}
	return e.word(Uint, v)
}

func (e *Encoder) complex(v complex128) error {
	w, err := e.reserve(3)
	if err == nil {
		w[0], w[1], w[2] = uint64(Complex), math.Float64bits(real(v)), math.Float64bits(imag(v))
	}
	return err
}

func (e *Encoder) big(v *big.Int) error {
	switch {
	case v == nil:
		return e.head(None, 0)
	case v.IsInt64():
		return e.word(Int, uint64(v.Int64()))
	case v.IsUint64():
		return e.word(Uint, v.Uint64())
	}
	return e.copy(Big, v.Text(16))
}

func (e *Encoder) bytes(v []byte) error {
	if len(v) > MaxText && e.Addresses {
		_, err := e.Rules.Write(e, v)
		return err
	}
	return e.copy(Bytes, unsafe.String(unsafe.SliceData(v), len(v)))
}

func (e *Encoder) text(kind Kind, v string) error {
	if len(v) > MaxText && e.Addresses {
		_, err := e.Rules.Write(e, v)
		return err
	}
	return e.copy(kind, v)
}

// copy writes n characters and a NUL.
func (e *Encoder) copy(kind Kind, v string) error {
	n := len(v)/8 + 1
	w, err := e.reserve(1 + n)
	if err != nil {
		return err
	}
	w[0], w[n] = first(kind, len(v)), 0
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&w[1])), 8*n), v)
	return nil
}

// Number writes the place of an array in a table.
func (e *Encoder) Number(n int) error { return e.head(Number, n) }

// Object writes the address of a PyObject, which the caller keeps until the words are read.
func (e *Encoder) Object(address unsafe.Pointer) error {
	e.mustHaveAddresses()
	return e.word(Object, uint64(uintptr(address)))
}

// Array returns the words of an array with n dimensions, after the first one, for the caller to
// fill in.
func (e *Encoder) Array(n int) ([]uint64, error) {
	e.mustHaveAddresses()
	w, err := e.reserve(5 + 2*n)
	if err != nil {
		return nil, err
	}
	w[0] = first(Array, n)
	return w[1:], nil
}

func (e *Encoder) mustHaveAddresses() {
	if !e.Addresses {
		panic("values: an address in words that may leave the process")
	}
}

func first(kind Kind, n int) uint64 { return uint64(kind) | uint64(n)<<kindBits }

// None writes no value.
func (e *Encoder) None() error { return e.head(None, 0) }

// head writes a value of one word.
func (e *Encoder) head(kind Kind, n int) error {
	w, err := e.reserve(1)
	if err == nil {
		w[0] = first(kind, n)
	}
	return err
}

// word writes a value of two words.
func (e *Encoder) word(kind Kind, of uint64) error {
	w, err := e.reserve(2)
	if err == nil {
		w[0], w[1] = uint64(kind), of
	}
	return err
}

// reserve returns the next n words.
func (e *Encoder) reserve(n int) ([]uint64, error) {
	used := len(e.Words)
	if n > cap(e.Words)-used {
		if err := e.grow(n); err != nil {
			return nil, err
		}
	}
	e.Words = e.Words[:used+n]
	return e.Words[used:], nil
}

func (e *Encoder) grow(n int) (err error) {
	if e.Grow == nil {
		e.Words = slices.Grow(e.Words, n)
		return nil
	}
	words, err := e.Grow(e.Words, n)
	if err == nil {
		e.Words = words
	}
	return err
}
