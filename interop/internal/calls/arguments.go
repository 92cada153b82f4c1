//go:build cgo && linux

package calls

/*
#include "usmb_calls.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

// errMemory is arguments for which there is no memory.
var errMemory = errors.New("calls: no memory for the arguments of a call")

// Depths of arguments: to which they are written without a look at Python, and to which arrays
// are looked for; what is nested deeper is python's to refuse.
const (
	maxShallow = 32
	maxDepth   = 1000
)

// Arguments are being written.
type Arguments struct {
	item    *Item
	py      *python.Interpreter // nil: no other values than those that need no Python
	objects []*python.Object    // what py made, until the call is over
	within  []container         // from the arguments to the value at hand
}

// notHere is a value that only Python can make its own.
type notHere struct{}

func (notHere) Error() string { return "calls: a value for Python to convert" }

// SetArguments writes the arguments of a call down, where no Python is needed for that:
// numbers, texts, bytes, arrays (of which it takes references), and slices, tuples and maps of
// them by name; a python.Kwargs last. false: the item has none, and they are for
// SetArgumentsWith. The GIL need not be held.
func (i *Item) SetArguments(args []any) (ok bool) {
	a := Arguments{item: i}
	defer func() {
		// What panics here, such as an array that was released, does so where its error is the call's.
		if recover() != nil || !ok {
			ok = false
			C.usmb_item_clear(i.c)
		}
	}()
	return a.write(args) == nil
}

// SetArgumentsWith is SetArguments for all that python.Object.Call takes. The GIL is held. What
// it returns is Released when the call is over; after an error, or a panic, nothing is left to
// release.
func (i *Item) SetArgumentsWith(py *python.Interpreter, args []any) (*Arguments, error) {
	a := &Arguments{item: i, py: py}
	written := false
	defer func() {
		if !written {
			a.Release()
		}
	}()
	if err := a.write(args); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	written = true
	return a, nil
}

// Release gives up the objects of Python that were made of arguments.
func (a *Arguments) Release() {
	for _, o := range a.objects {
		o.Release()
	}
}

func (a *Arguments) write(args []any) error {
	var named python.Kwargs
	if n := len(args); n > 0 {
		if k, ok := args[n-1].(python.Kwargs); ok {
			named, args = k, args[:n-1]
		}
	}
	if err := a.enter(containerOf(args), args); err != nil {
		return err
	}
	for i, v := range args {
		if err := a.value(v, 1); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	a.item.c.positional = C.uint32_t(len(args))
	return a.names(named)
}

// names writes keyword arguments.
func (a *Arguments) names(named python.Kwargs) error {
	for name, v := range named {
		if err := a.text(C.USMB_ARG_TEXT, name); err != nil {
			return err
		}
		if err := a.value(v, 1); err != nil {
			return fmt.Errorf("[%q]: %w", name, err)
		}
	}
	a.item.c.named = C.uint32_t(len(named))
	return nil
}

// value writes one value and what is in it.
func (a *Arguments) value(v any, depth int) error {
	if depth > maxDepth || a.py == nil && depth > maxShallow {
		return a.object(v)
	}
	switch v := v.(type) {
	case nil:
		return a.word(C.USMB_ARG_NONE, 0)
	case bool:
		if v {
			return a.word(C.USMB_ARG_BOOL, 1)
		}
		return a.word(C.USMB_ARG_BOOL, 0)
	case int:
		return a.words(C.USMB_ARG_INT, uint64(v))
	case int64:
		return a.words(C.USMB_ARG_INT, uint64(v))
	case int32:
		return a.words(C.USMB_ARG_INT, uint64(int64(v)))
	case uint64:
		return a.words(C.USMB_ARG_UINT, v)
	case float64:
		return a.words(C.USMB_ARG_FLOAT, math.Float64bits(v))
	case float32:
		return a.words(C.USMB_ARG_FLOAT, math.Float64bits(float64(v)))
	case complex128:
		return a.words(C.USMB_ARG_COMPLEX, math.Float64bits(real(v)), math.Float64bits(imag(v)))
	case string:
		if len(v) <= maxText {
			return a.text(C.USMB_ARG_TEXT, v)
		}
	case []byte:
		if len(v) <= maxText {
			return a.text(C.USMB_ARG_BYTES, unsafe.String(unsafe.SliceData(v), len(v)))
		}
	case *usmarray.Array:
		return a.array(v)
	case []any:
		return list(a, C.USMB_ARG_LIST, v, depth)
	case python.Tuple:
		return list(a, C.USMB_ARG_TUPLE, v, depth)
	case []*usmarray.Array:
		return list(a, C.USMB_ARG_LIST, v, depth)
	case map[string]any:
		return dict(a, v, depth)
	case python.Kwargs:
		return dict(a, v, depth)
	case map[string]*usmarray.Array:
		return dict(a, v, depth)
	}
	return a.object(v)
}

// maxText is how long texts and bytes are that are copied twice on their way.
const maxText = 4096

// object writes a value that Python converts.
func (a *Arguments) object(v any) error {
	if a.py == nil {
		return notHere{}
	}
	o, err := a.py.New(v)
	if err != nil {
		return err
	}
	a.objects = append(a.objects, o)
	return a.words(C.USMB_ARG_BORROWED, uint64(uintptr(o.Pointer())))
}

func (a *Arguments) array(v *usmarray.Array) error {
	if v == nil {
		return a.word(C.USMB_ARG_NONE, 0)
	}
	d, err := calling.Describe(v)
	if err != nil {
		return err
	}
	n := len(d.Shape)
	w, err := a.reserve(5 + 2*n)
	if err != nil {
		v.Buffer().Release()
		return err
	}
	flags := d.Flags
	if !v.ReadOnly() && !v.Place().IsHost() {
		flags |= C.USMB_ARG_WAIT
	}
	w[0] = uint64(C.USMB_ARG_ARRAY) | uint64(n)<<C.USMB_ARG_BITS
	w[1], w[2], w[3], w[4] = uint64(d.Cell), uint64(d.First), uint64(d.DataType), uint64(flags)
	for i := range n {
		w[5+i], w[5+n+i] = uint64(d.Shape[i]), uint64(d.Strides[i])
	}
	return nil
}

func list[T any](a *Arguments, kind uint64, v []T, depth int) error {
	if err := a.enter(containerOf(v), v); err != nil {
		return err
	}
	defer a.leave()
	if err := a.word(kind, len(v)); err != nil {
		return err
	}
	for i, e := range v {
		if err := a.value(e, depth+1); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func dict[T any](a *Arguments, v map[string]T, depth int) error {
	if err := a.enter(container{reflect.ValueOf(v).UnsafePointer(), -1}, v); err != nil {
		return err
	}
	defer a.leave()
	if err := a.word(C.USMB_ARG_DICT, len(v)); err != nil {
		return err
	}
	for name, e := range v {
		if err := a.text(C.USMB_ARG_TEXT, name); err != nil {
			return err
		}
		if err := a.value(e, depth+1); err != nil {
			return fmt.Errorf("[%q]: %w", name, err)
		}
	}
	return nil
}

// container tells a slice or a map from others.
type container struct {
	at     unsafe.Pointer
	length int // of a slice, -1 of a map
}

func containerOf[T any](v []T) container {
	return container{unsafe.Pointer(unsafe.SliceData(v)), len(v)}
}

// enter notes a container until leave; one that holds itself is an error.
func (a *Arguments) enter(in container, v any) error {
	if slices.Contains(a.within, in) && in.at != nil && in.length != 0 {
		return &python.ConversionError{From: fmt.Sprintf("%T", v), To: "a Python object", Err: python.ErrCycle}
	}
	a.within = append(a.within, in)
	return nil
}

func (a *Arguments) leave() { a.within = a.within[:len(a.within)-1] }

// word writes the word of a value.
func (a *Arguments) word(kind uint64, n int) error {
	w, err := a.reserve(1)
	if err == nil {
		w[0] = kind | uint64(n)<<C.USMB_ARG_BITS
	}
	return err
}

// words writes a value of so many words.
func (a *Arguments) words(kind uint64, of ...uint64) error {
	w, err := a.reserve(1 + len(of))
	if err == nil {
		w[0] = kind
		copy(w[1:], of)
	}
	return err
}

func (a *Arguments) text(kind uint64, s string) error {
	n := len(s)/8 + 1
	w, err := a.reserve(1 + n)
	if err != nil {
		return err
	}
	w[0] = kind | uint64(len(s))<<C.USMB_ARG_BITS
	w[n] = 0
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&w[1])), 8*n), s)
	return nil
}

// reserve gives the next words. Their values go in before anything else is written.
func (a *Arguments) reserve(n int) ([]uint64, error) {
	c := a.item.c
	used := int(c.used)
	if used+n > int(c.room) && (uint64(n) > math.MaxUint32/2 || C.usmb_item_grow(c, C.uint32_t(n)) == 0) {
		return nil, errMemory
	}
	c.used += C.uint32_t(n)
	return unsafe.Slice((*uint64)(unsafe.Pointer(c.code)), int(c.room))[used : used+n : used+n], nil
}
