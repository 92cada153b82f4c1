package workers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/internal/values"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

// maxArrays is the maximum number of arrays of a call or a result.
const maxArrays = 4096

// encoder writes the values of a message in the format of package values. Arrays are numbers of a
// table that travels before the values; an array that occurs twice has one number. encoder
// implements values.Rules.
type encoder struct {
	values.Encoder
	limit  int // bytes of values
	arrays []*usmarray.Array
	index  map[*usmarray.Array]int
}

func newEncoder(limit int) *encoder {
	e := &encoder{limit: limit}
	e.Rules, e.Grow = e, e.grow
	return e
}

// bytes returns the bytes written so far.
func (e *encoder) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(e.Words))), 8*len(e.Words))
}

// call writes a call: the name of the function, the numbers of positional and of keyword arguments, and
// the arguments.
func (e *encoder) call(function string, args []any) error {
	var names python.Kwargs
	if n := len(args); n > 0 {
		if k, ok := args[n-1].(python.Kwargs); ok {
			names, args = k, args[:n-1]
		}
	}
	for _, v := range []any{function, len(args), len(names)} {
		if err := e.Encode(v); err != nil {
			return err
		}
	}
	return e.Arguments(args, names)
}

// grow makes room for n more words, up to the limit.
func (e *encoder) grow(words []uint64, n int) ([]uint64, error) {
	want, most := len(words)+n, e.limit/8
	if want > most {
		return nil, fmt.Errorf("%w: more than %d bytes (Config.MaxMessage); pass long data as arrays", ErrTooLong, e.limit)
	}
	grown := make([]uint64, len(words), min(most, max(want, 2*cap(words), 32)))
	copy(grown, words)
	return grown, nil
}

var typeTuple = reflect.TypeFor[python.Tuple]()

// Write writes arrays and tuples, and refuses objects of Python and errors.
func (e *encoder) Write(_ *values.Encoder, v any) (known bool, err error) {
	switch v := v.(type) {
	case *usmarray.Array:
		return true, e.array(v)
	case python.Tuple:
		return true, e.Sequence(values.Tuple, v, typeTuple)
	case *python.Object:
		if v == nil {
			return true, e.None()
		}
		return true, e.Refuse("*python.Object", errors.New("it is an object of this process: pass its value, or make it in the worker"))
	case error:
		return true, e.Refuse(fmt.Sprintf("%T", v), errors.New("errors are not values: pass the text of the error"))
	}
	return false, nil
}

var errOneProcess = errors.New("it is valid in this process only")

// Refuse returns a *python.ConversionError.
func (e *encoder) Refuse(typ string, reason error) error {
	if reason == nil {
		reason = errOneProcess
	}
	return &python.ConversionError{From: typ, To: "a value for another process's Python", Err: reason}
}

func (e *encoder) array(a *usmarray.Array) error {
	if a == nil {
		return e.None()
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
	return e.Number(i)
}

// decoder reads the payload of a message: numbers and a table of arrays, then values. The other process is not
// trusted.
type decoder struct {
	b      []byte
	arrays []*usmarray.Array // by their numbers in the values

	own  bool // make a reference for each place of an array, which the receiver of the value owns
	used map[uint64]bool
	more []*usmarray.Array // references for the second and later places
}

var errShort = errors.New("it ends too early")

func bad(reason string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMessage, fmt.Errorf(reason, args...))
}

func (d *decoder) values() *values.Decoder {
	return &values.Decoder{Bytes: d.b, Array: d.array, Tuple: func(v []any) any { return python.Tuple(v) }}
}

// call reads a call as encoder.call writes it.
func (d *decoder) call() (function string, args []any, err error) {
	in := d.values()
	var head [3]any
	for i := range head {
		if head[i], err = in.Value(); err != nil {
			return "", nil, bad("%w", err)
		}
	}
	function, named := head[0].(string)
	n, counted := head[1].(int64)
	names, countedNames := head[2].(int64)
	if !named || !counted || !countedNames || n < 0 || names < 0 {
		return "", nil, bad("the head of a call is %v", head)
	}
	for range n {
		v, err := in.Value()
		if err != nil {
			return "", nil, bad("%w", err)
		}
		args = append(args, v)
	}
	if names > 0 {
		kwargs, err := in.Dict(uint64(names))
		if err != nil {
			return "", nil, bad("%w", err)
		}
		args = append(args, python.Kwargs(kwargs))
	}
	if err := in.End(); err != nil {
		return "", nil, bad("%w", err)
	}
	return function, args, nil
}

// result reads one value, to the end of the payload.
func (d *decoder) result() (any, error) {
	in := d.values()
	v, err := in.Value()
	if err == nil {
		err = in.End()
	}
	if err != nil {
		return nil, bad("%w", err)
	}
	return v, nil
}

func (d *decoder) array(i uint64) (any, error) {
	if i >= uint64(len(d.arrays)) {
		return nil, fmt.Errorf("array %d of %d", i, len(d.arrays))
	}
	a := d.arrays[i]
	if !d.own {
		return a, nil
	}
	if d.used[i] {
		a = a.Retain()
		d.more = append(d.more, a)
		return a, nil
	}
	if d.used == nil {
		d.used = map[uint64]bool{}
	}
	d.used[i] = true
	return a, nil
}

// releaseUnused releases the arrays that occur in no value; all of them if reading failed.
func (d *decoder) releaseUnused(ok bool) {
	for i, a := range d.arrays {
		if !ok || !d.used[uint64(i)] {
			a.Release()
		}
	}
	if !ok {
		releaseAll(d.more)
	}
}

func (d *decoder) uvarint() (uint64, error) {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		return 0, bad("%w", errShort)
	}
	d.b = d.b[n:]
	return v, nil
}

// count reads the number of the items that follow. Each item has at least each bytes.
func (d *decoder) count(each int) (int, error) {
	n, err := d.uvarint()
	if err != nil {
		return 0, err
	}
	if n > uint64(len(d.b)/each) {
		return 0, bad("%d items in %d bytes", n, len(d.b))
	}
	return int(n), nil
}

func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.b) {
		return nil, bad("%w", errShort)
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b, nil
}
