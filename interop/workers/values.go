package workers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

// What values look like on the way: a byte that says what follows, lengths and integers as
// varints. Arrays are numbers in a table that travels before them.
const (
	tagNone byte = iota
	tagFalse
	tagTrue
	tagInt
	tagBig
	tagFloat
	tagComplex
	tagText
	tagBytes
	tagList
	tagTuple
	tagDict    // of text
	tagAnyDict // of any key
	tagArray
)

// maxNesting is how deep containers may lie in containers, as package python has it.
const maxNesting = 1000

// maxArrays is how many arrays a call, or a result, may have.
const maxArrays = 4096

// encoder writes values. The arrays among them are noted; the same one twice is one.
type encoder struct {
	b      []byte
	limit  int
	arrays []*usmarray.Array
	index  map[*usmarray.Array]int
	within []container
}

// container tells a slice or a map from others.
type container struct {
	at     unsafe.Pointer
	length int // of a slice, -1 of a map
}

const toPython = "a value for another process's Python"

func unfit(v any, reason string, args ...any) error {
	return &python.ConversionError{From: fmt.Sprintf("%T", v), To: toPython, Err: fmt.Errorf(reason, args...)}
}

// call writes a function and its arguments.
func (e *encoder) call(function string, args []any) error {
	e.text(function)
	var names python.Kwargs
	if n := len(args); n > 0 {
		if k, ok := args[n-1].(python.Kwargs); ok {
			names, args = k, args[:n-1]
		}
	}
	e.count(len(args))
	for i, v := range args {
		if err := e.value(v); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	e.count(len(names))
	for name, v := range names {
		e.text(name)
		if err := e.value(v); err != nil {
			return fmt.Errorf("%s=: %w", name, err)
		}
	}
	return e.bounded()
}

func (e *encoder) bounded() error {
	if len(e.b) > e.limit {
		return fmt.Errorf("%w: more than %d bytes (Config.MaxMessage); pass what is long as arrays", ErrTooLong, e.limit)
	}
	return nil
}

func (e *encoder) tag(t byte)  { e.b = append(e.b, t) }
func (e *encoder) count(n int) { e.b = binary.AppendUvarint(e.b, uint64(n)) }
func (e *encoder) integer(v int64) {
	e.tag(tagInt)
	e.b = binary.AppendVarint(e.b, v)
}

func (e *encoder) text(s string) {
	e.count(len(s))
	e.b = append(e.b, s...)
}

func (e *encoder) float(v float64) {
	e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v))
}

// value writes what package executor takes, by the rules of python's Interpreter.New.
func (e *encoder) value(v any) error {
	if err := e.bounded(); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		e.tag(tagNone)
	case bool:
		e.boolean(v)
	case int:
		e.integer(int64(v))
	case int64:
		e.integer(v)
	case float64:
		e.tag(tagFloat)
		e.float(v)
	case string:
		e.tag(tagText)
		e.text(v)
	case []byte:
		e.tag(tagBytes)
		e.text(unsafe.String(unsafe.SliceData(v), len(v)))
	case *big.Int:
		e.big(v)
	case *usmarray.Array:
		return e.array(v)
	case []any:
		return listOf(e, tagList, v)
	case python.Tuple:
		return listOf(e, tagTuple, v)
	case []*usmarray.Array:
		return listOf(e, tagList, v)
	case map[string]any:
		return dictOf(e, v)
	case python.Kwargs:
		return dictOf(e, v)
	case map[string]*usmarray.Array:
		return dictOf(e, v)
	case *python.Object:
		if v == nil {
			e.tag(tagNone)
			return nil
		}
		return unfit(v, "it is an object of this process's Python: pass its value, or make it in the worker")
	case error:
		return unfit(v, "errors do not travel as values; pass their text")
	default:
		return e.reflected(reflect.ValueOf(v))
	}
	return nil
}

func (e *encoder) boolean(v bool) {
	if v {
		e.tag(tagTrue)
	} else {
		e.tag(tagFalse)
	}
}

func (e *encoder) big(v *big.Int) {
	switch {
	case v == nil:
		e.tag(tagNone)
	case v.IsInt64():
		e.integer(v.Int64())
	default:
		e.tag(tagBig)
		if v.Sign() < 0 {
			e.tag(1)
		} else {
			e.tag(0)
		}
		b := v.Bytes()
		e.count(len(b))
		e.b = append(e.b, b...)
	}
}

func (e *encoder) array(a *usmarray.Array) error {
	if a == nil {
		e.tag(tagNone)
		return nil
	}
	i, ok := e.index[a]
	if !ok {
		if i = len(e.arrays); i == maxArrays {
			return fmt.Errorf("%w: more than %d arrays", ErrTooLong, maxArrays)
		}
		if e.index == nil {
			e.index = map[*usmarray.Array]int{}
		}
		e.index[a] = i
		e.arrays = append(e.arrays, a)
	}
	e.tag(tagArray)
	e.count(i)
	return nil
}

// enter notes a container until leave; one that holds itself is an error.
func (e *encoder) enter(in container, v any) error {
	if in.at != nil && in.length != 0 && slices.Contains(e.within, in) {
		return &python.ConversionError{From: fmt.Sprintf("%T", v), To: toPython, Err: python.ErrCycle}
	}
	if len(e.within) == maxNesting {
		return &python.ConversionError{From: fmt.Sprintf("%T", v), To: toPython, Err: python.ErrTooDeep}
	}
	e.within = append(e.within, in)
	return nil
}

func (e *encoder) leave() { e.within = e.within[:len(e.within)-1] }

func listOf[T any](e *encoder, tag byte, v []T) error {
	if err := e.enter(container{unsafe.Pointer(unsafe.SliceData(v)), len(v)}, v); err != nil {
		return err
	}
	defer e.leave()
	e.tag(tag)
	e.count(len(v))
	for i, x := range v {
		if err := e.value(x); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func dictOf[T any](e *encoder, v map[string]T) error {
	if err := e.enter(container{reflect.ValueOf(v).UnsafePointer(), -1}, v); err != nil {
		return err
	}
	defer e.leave()
	e.tag(tagDict)
	e.count(len(v))
	for k, x := range v {
		e.text(k)
		if err := e.value(x); err != nil {
			return fmt.Errorf("[%q]: %w", k, err)
		}
	}
	return nil
}

// reflected writes values of other types by what they are.
func (e *encoder) reflected(v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		e.boolean(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.integer(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		e.big(new(big.Int).SetUint64(v.Uint()))
	case reflect.Float32, reflect.Float64:
		e.tag(tagFloat)
		e.float(v.Float())
	case reflect.Complex64, reflect.Complex128:
		e.tag(tagComplex)
		e.float(real(v.Complex()))
		e.float(imag(v.Complex()))
	case reflect.String:
		e.tag(tagText)
		e.text(v.String())
	case reflect.Pointer, reflect.Interface:
		return e.pointer(v)
	case reflect.Slice, reflect.Array:
		return e.sequence(v)
	case reflect.Map:
		return e.mapping(v)
	case reflect.Struct:
		return unfit(v.Interface(), "structs do not travel to a worker: pass a map")
	default:
		return unfit(v.Interface(), "it means something in this process alone")
	}
	return nil
}

func (e *encoder) pointer(v reflect.Value) error {
	if v.IsNil() {
		e.tag(tagNone)
		return nil
	}
	if err := e.enter(container{v.UnsafePointer(), -2}, v.Interface()); err != nil {
		return err
	}
	defer e.leave()
	return e.value(v.Elem().Interface())
}

func (e *encoder) sequence(v reflect.Value) error {
	in := container{nil, v.Len()}
	if v.Kind() == reflect.Slice {
		if v.Type().Elem().Kind() == reflect.Uint8 {
			e.tag(tagBytes)
			b := v.Bytes()
			e.text(unsafe.String(unsafe.SliceData(b), len(b)))
			return nil
		}
		in.at = v.UnsafePointer()
	}
	if err := e.enter(in, v.Interface()); err != nil {
		return err
	}
	defer e.leave()
	e.tag(tagList)
	e.count(v.Len())
	for i := range v.Len() {
		if err := e.value(v.Index(i).Interface()); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func (e *encoder) mapping(v reflect.Value) error {
	if err := e.enter(container{v.UnsafePointer(), -1}, v.Interface()); err != nil {
		return err
	}
	defer e.leave()
	e.tag(tagAnyDict)
	e.count(v.Len())
	for it := v.MapRange(); it.Next(); {
		key := it.Key().Interface()
		if err := e.value(key); err != nil {
			return fmt.Errorf("the key %v: %w", key, err)
		}
		if err := e.value(it.Value().Interface()); err != nil {
			return fmt.Errorf("[%v]: %w", key, err)
		}
	}
	return nil
}

// decoder reads values: what another process sent, which may be anything.
type decoder struct {
	b      []byte
	arrays []*usmarray.Array // what the numbers of arrays stand for
	depth  int

	own  bool // each place of a value has an array of its own, which whoever reads it owns
	used map[uint64]bool
	more []*usmarray.Array // beside arrays, those of further places
}

var errShort = errors.New("it ends too early")

func (d *decoder) bad(reason string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMessage, fmt.Errorf(reason, args...))
}

// call reads what encoder.call wrote.
func (d *decoder) call() (function string, args []any, err error) {
	if function, err = d.text(); err != nil {
		return "", nil, err
	}
	n, err := d.count(1)
	if err != nil {
		return "", nil, err
	}
	for range n {
		v, err := d.value()
		if err != nil {
			return "", nil, err
		}
		args = append(args, v)
	}
	if n, err = d.count(2); err != nil {
		return "", nil, err
	}
	if n > 0 {
		names, err := d.dict(n)
		if err != nil {
			return "", nil, err
		}
		args = append(args, python.Kwargs(names))
	}
	return function, args, d.end()
}

// result reads one value, which is all there is.
func (d *decoder) result() (any, error) {
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	return v, d.end()
}

func (d *decoder) end() error {
	if len(d.b) > 0 {
		return d.bad("%d bytes after its end", len(d.b))
	}
	return nil
}

func (d *decoder) uvarint() (uint64, error) {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		return 0, d.bad("%w", errShort)
	}
	d.b = d.b[n:]
	return v, nil
}

// count reads how many things follow that take so many bytes each at least.
func (d *decoder) count(each int) (int, error) {
	n, err := d.uvarint()
	if err != nil {
		return 0, err
	}
	if n > uint64(len(d.b)/each) {
		return 0, d.bad("%d things in %d bytes", n, len(d.b))
	}
	return int(n), nil
}

func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.b) {
		return nil, d.bad("%w", errShort)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b, nil
}

func (d *decoder) text() (string, error) {
	n, err := d.count(1)
	if err != nil {
		return "", err
	}
	b, err := d.take(n)
	return string(b), err
}

func (d *decoder) float() (float64, error) {
	b, err := d.take(8)
	if err != nil {
		return 0, err
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
}

func (d *decoder) value() (any, error) {
	tag, err := d.take(1)
	if err != nil {
		return nil, err
	}
	switch tag[0] {
	case tagNone:
		return nil, nil
	case tagFalse, tagTrue:
		return tag[0] == tagTrue, nil
	case tagInt:
		v, n := binary.Varint(d.b)
		if n <= 0 {
			return nil, d.bad("%w", errShort)
		}
		d.b = d.b[n:]
		return v, nil
	case tagBig:
		return d.big()
	case tagFloat:
		return d.float()
	case tagComplex:
		re, err := d.float()
		if err != nil {
			return nil, err
		}
		im, err := d.float()
		return complex(re, im), err
	case tagText:
		return d.text()
	case tagBytes:
		n, err := d.count(1)
		if err != nil {
			return nil, err
		}
		b, err := d.take(n)
		return append([]byte{}, b...), err
	case tagArray:
		i, err := d.uvarint()
		if err != nil {
			return nil, err
		}
		if i >= uint64(len(d.arrays)) {
			return nil, d.bad("array %d of %d", i, len(d.arrays))
		}
		return d.array(i), nil
	}
	return d.container(tag[0])
}

func (d *decoder) array(i uint64) *usmarray.Array {
	a := d.arrays[i]
	if !d.own {
		return a
	}
	if d.used[i] {
		a = a.Retain()
		d.more = append(d.more, a)
		return a
	}
	if d.used == nil {
		d.used = map[uint64]bool{}
	}
	d.used[i] = true
	return a
}

// settle releases the arrays that no value has: all of them where there is none.
func (d *decoder) settle(well bool) {
	for i, a := range d.arrays {
		if !well || !d.used[uint64(i)] {
			a.Release()
		}
	}
	if !well {
		releaseAll(d.more)
	}
}

func (d *decoder) big() (any, error) {
	sign, err := d.take(1)
	if err != nil {
		return nil, err
	}
	n, err := d.count(1)
	if err != nil {
		return nil, err
	}
	b, err := d.take(n)
	if err != nil {
		return nil, err
	}
	v := new(big.Int).SetBytes(b)
	if sign[0] != 0 {
		v.Neg(v)
	}
	if v.IsInt64() { // which has a form of its own, and one key is not to have two
		return nil, d.bad("the integer %v as a large one", v)
	}
	return v, nil
}

func (d *decoder) container(tag byte) (any, error) {
	if d.depth++; d.depth > maxNesting {
		return nil, d.bad("%w", python.ErrTooDeep)
	}
	defer func() { d.depth-- }()
	switch tag {
	case tagList:
		return d.list()
	case tagTuple:
		v, err := d.list()
		return python.Tuple(v), err
	case tagDict:
		n, err := d.count(2)
		if err != nil {
			return nil, err
		}
		return d.dict(n)
	case tagAnyDict:
		return d.anyDict()
	}
	return nil, d.bad("tag %d", tag)
}

func (d *decoder) list() ([]any, error) {
	n, err := d.count(1)
	if err != nil {
		return nil, err
	}
	v := make([]any, 0, min(n, 4096))
	for range n {
		x, err := d.value()
		if err != nil {
			return nil, err
		}
		v = append(v, x)
	}
	return v, nil
}

func (d *decoder) dict(n int) (map[string]any, error) {
	v := make(map[string]any, min(n, 4096))
	for range n {
		k, err := d.text()
		if err != nil {
			return nil, err
		}
		if _, twice := v[k]; twice {
			return nil, d.bad("the key %q twice", k)
		}
		if v[k], err = d.value(); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (d *decoder) anyDict() (any, error) {
	n, err := d.count(2)
	if err != nil {
		return nil, err
	}
	v := make(map[any]any, min(n, 4096))
	for range n {
		k, err := d.value()
		if err != nil {
			return nil, err
		}
		switch k.(type) {
		case nil, bool, int64, *big.Int, float64, complex128, string:
		default:
			return nil, d.bad("a key of type %T", k)
		}
		if _, twice := v[k]; twice {
			return nil, d.bad("the key %v twice", k)
		}
		if v[k], err = d.value(); err != nil {
			return nil, err
		}
	}
	return v, nil
}
