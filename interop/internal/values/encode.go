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

// Rules define how an [Encoder] writes the types that depend on its use.
type Rules interface {
	// Write writes v if the rules know its type, and reports whether they do. The encoder calls it
	// before it uses reflection, for each value that is not nil, a number, a text, bytes, a []any
	// or a map[string]any. An encoder with Addresses also calls it for texts and bytes longer
	// than MaxText.
	Write(e *Encoder, v any) (known bool, err error)

	// Refuse returns the error for a value of a type that cannot be written. reason may be nil.
	Refuse(typ string, reason error) error
}

// MaxText is the maximum length in bytes of a text or bytes that an encoder with Addresses writes as
// words. The rules make Python objects of longer ones, which saves the copy into words.
const MaxText = 4096

// Encoder writes values. Its zero value, with Rules, is ready.
type Encoder struct {
	// Words are the words written so far. The caller may set it to an empty slice with capacity.
	Words []uint64

	Rules Rules

	// Grow returns words with capacity for n more. If it is nil, the encoder allocates Go memory.
	Grow func(words []uint64, n int) ([]uint64, error)

	// Addresses allows Object and Array. Such words must not leave the process.
	Addresses bool

	path Path
}

// Reset removes all values and keeps the capacity.
func (e *Encoder) Reset() { e.Words, e.path = e.Words[:0], e.path[:0] }

// Encode writes a value. Errors are those of Rules.Refuse, Rules.Write and Grow, with the place in v
// where they arose. After an error Words ends with a part of v; Reset removes it.
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
		if err := e.text(name); err != nil {
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

// Value writes a value inside another one. Only Rules.Write calls it; use Encode elsewhere.
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
		return e.text(v)
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

// enter adds a container to the path and writes its first word. The number n of its values is part of
// its identity. For a Dict n is 0: the caller counts the entries as it writes them, and then corrects
// the word.
func (e *Encoder) enter(kind Kind, n int, address unsafe.Pointer, typ reflect.Type) error {
	if err := e.path.Enter(address, n, typ); err != nil {
		return e.Rules.Refuse(typ.String(), err)
	}
	return e.head(kind, n)
}

// Sequence writes the elements of a list or tuple. typ is the type of the slice.
func (e *Encoder) Sequence(kind Kind, v []any, typ reflect.Type) error {
	if err := e.enter(kind, len(v), unsafe.Pointer(unsafe.SliceData(v)), typ); err != nil {
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
	at, n := len(e.Words), 0
	if err := e.enter(Dict, 0, reflect.ValueOf(v).UnsafePointer(), typeDict); err != nil {
		return err
	}
	for name, x := range v {
		e.path.AtName(name)
		if err := e.text(name); err != nil {
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
		return e.text(v.String())
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
	if err := e.enter(List, v.Len(), address, v.Type()); err != nil {
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
	at, n := len(e.Words), 0
	if err := e.enter(Dict, 0, v.UnsafePointer(), v.Type()); err != nil {
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

func (e *Encoder) text(v string) error {
	if len(v) > MaxText && e.Addresses {
		_, err := e.Rules.Write(e, v)
		return err
	}
	return e.copy(Text, v)
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
