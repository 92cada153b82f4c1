//go:build cgo && linux

package calls

/*
#include "usmb_calls.h"
*/
import "C"

import (
	"errors"
	"math"
	"reflect"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/interop/internal/values"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

var (
	errMemory      = errors.New("calls: no memory for the arguments of a call")
	errNeedsPython = errors.New("calls: a value for Python to convert")
)

// arguments writes the arguments of an Item. It implements values.Rules.
type arguments struct {
	item    *Item
	encoder values.Encoder
	py      *python.Interpreter // nil: refuse values that only Python converts
	objects []*python.Object    // made by py; kept until the call is over
}

// SetArguments writes the arguments of a call, a python.Kwargs last for keywords, without Python. It
// takes a reference of each array. It reports false, and the item has no arguments, if a value needs
// Python or cannot be converted: then SetArgumentsWith does it, or returns the error. The GIL need
// not be held.
func (i *Item) SetArguments(args []any) (ok bool) {
	defer func() {
		// A panic, of an array that was released for instance, is repeated by SetArgumentsWith, where it is
		// the error of the call.
		if recover() != nil || !ok {
			ok = false
			C.usmb_item_clear(i.c)
		}
	}()
	return i.arguments.write(nil, args) == nil
}

// SetArgumentsWith is SetArguments for all values that python.Object.Call takes. The GIL must be
// held. The caller calls ReleaseArguments when the call is over, also after an error or a panic.
func (i *Item) SetArgumentsWith(py *python.Interpreter, args []any) error {
	return i.arguments.write(py, args)
}

// ReleaseArguments releases the Python objects that SetArgumentsWith made.
func (i *Item) ReleaseArguments() {
	a := &i.arguments
	for _, o := range a.objects {
		o.Release()
	}
	clear(a.objects)
	a.objects = a.objects[:0]
}

func (a *arguments) init(item *Item) {
	a.item = item
	a.encoder.Rules, a.encoder.Grow, a.encoder.Addresses = a, a.grow, true
}

func (a *arguments) write(py *python.Interpreter, args []any) error {
	var named python.Kwargs
	if n := len(args); n > 0 {
		if k, ok := args[n-1].(python.Kwargs); ok {
			named, args = k, args[:n-1]
		}
	}
	c := a.item.c
	a.py, a.encoder.Words = py, a.memory()
	a.encoder.Reset()
	// After a panic too: usmb_item_clear releases the arrays in the words.
	defer func() { c.used = C.uint32_t(len(a.encoder.Words)) }()
	if err := a.encoder.Arguments(args, named); err != nil {
		return err
	}
	c.positional, c.named = C.uint32_t(len(args)), C.uint32_t(len(named))
	return nil
}

// memory returns the item's memory of C for words.
func (a *arguments) memory() []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(a.item.c.code)), int(a.item.c.room))
}

// grow makes room for n more words.
func (a *arguments) grow(words []uint64, n int) ([]uint64, error) {
	c := a.item.c
	c.used = C.uint32_t(len(words))
	if uint64(n) > math.MaxUint32/2 || C.usmb_item_grow(c, C.uint32_t(n)) == 0 {
		return nil, errMemory
	}
	return a.memory()[:len(words)], nil
}

var typeTuple = reflect.TypeFor[python.Tuple]()

// Write writes arrays and tuples, and has Python convert the values that only it can.
func (a *arguments) Write(e *values.Encoder, v any) (known bool, err error) {
	switch v := v.(type) {
	case *usmarray.Array:
		return true, a.array(v)
	case python.Tuple:
		return true, e.Sequence(values.Tuple, v, typeTuple)
	case *python.Object, string, []byte, error:
		return true, a.object(v)
	}
	if reflect.TypeOf(v).Kind() == reflect.Func {
		return true, a.object(v)
	}
	return false, nil
}

// Refuse returns a *python.ConversionError.
func (a *arguments) Refuse(typ string, reason error) error {
	return &python.ConversionError{From: typ, To: "a Python object", Err: reason}
}

// object writes a value that Python converts.
func (a *arguments) object(v any) error {
	if a.py == nil {
		return errNeedsPython
	}
	o, err := a.py.New(v)
	if err != nil {
		return err
	}
	a.objects = append(a.objects, o)
	return a.encoder.Object(o.Pointer())
}

func (a *arguments) array(v *usmarray.Array) error {
	if v == nil {
		return a.encoder.None()
	}
	d, err := calling.Describe(v)
	if err != nil {
		return err
	}
	n := len(d.Shape)
	w, err := a.encoder.Array(n)
	if err != nil {
		v.Buffer().Release()
		return err
	}
	flags := d.Flags
	if !v.ReadOnly() && !v.Place().IsHost() {
		flags |= C.USMB_ARG_WAIT
	}
	w[0], w[1], w[2], w[3] = uint64(d.Cell), uint64(d.First), uint64(d.DataType), uint64(flags)
	for i := range n {
		w[4+i], w[4+n+i] = uint64(d.Shape[i]), uint64(d.Strides[i])
	}
	return nil
}
