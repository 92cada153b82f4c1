package executor

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/usmarray"
)

// maxDepth is how deep arrays are looked for; what is nested deeper is python's to refuse.
const maxDepth = 1000

// conversion is the arguments of one call on their way.
type conversion struct {
	objects []*python.Object
	usm     []*python.Object // of objects: arrays that devices can be told to write into
	within  []container      // from the arguments to the value at hand
}

// container tells a slice or a map from others.
type container struct {
	at     unsafe.Pointer
	length int // of a slice, -1 of a map
}

// enter notes a container until leave; one that holds itself is an error.
func (c *conversion) enter(in container, v any) error {
	if slices.Contains(c.within, in) && in.at != nil && in.length != 0 {
		return &python.ConversionError{From: fmt.Sprintf("%T", v), To: "a Python object", Err: python.ErrCycle}
	}
	c.within = append(c.within, in)
	return nil
}

func (c *conversion) leave() { c.within = c.within[:len(c.within)-1] }

func (c *conversion) release() {
	for _, o := range c.objects {
		o.Release()
	}
}

// arguments makes of the arguments what Call takes and the caller cannot change any more.
func (c *conversion) arguments(py *python.Interpreter, args []any) ([]any, error) {
	out, err := c.list(args, 0)
	for i := 0; err == nil && i < len(out); i++ {
		if names, ok := out[i].(python.Kwargs); ok {
			for name, v := range names {
				if names[name], err = c.object(py, v); err != nil {
					break
				}
			}
			continue
		}
		out[i], err = c.object(py, out[i])
	}
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	return out, nil
}

// object makes Python's object of what may be changed, or released, by its owner.
func (c *conversion) object(py *python.Interpreter, v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, int, int64, float64, string:
		return v, nil
	case *python.Object:
		if slices.Contains(c.objects, v) { // made here, of an array
			return v, nil
		}
	}
	o, err := py.New(v)
	if err == nil {
		c.objects = append(c.objects, o)
	}
	return o, err
}

// value replaces arrays by Python's; everything else is for python to convert.
func (c *conversion) value(v any, depth int) (any, error) {
	if depth > maxDepth {
		return v, nil
	}
	switch v := v.(type) {
	case *usmarray.Array:
		if v == nil {
			return nil, nil
		}
		o, err := pymodule.ToPython(v)
		if err != nil {
			return nil, err
		}
		c.objects = append(c.objects, o)
		if !v.ReadOnly() && !v.Place().IsHost() {
			c.usm = append(c.usm, o)
		}
		return o, nil
	case []any:
		return c.list(v, depth)
	case python.Tuple:
		list, err := c.list(v, depth)
		return python.Tuple(list), err
	case []*usmarray.Array:
		return convertList(c, v, depth)
	case map[string]any:
		return convertMap(c, v, depth)
	case python.Kwargs:
		m, err := convertMap(c, v, depth)
		return python.Kwargs(m), err
	case map[string]*usmarray.Array:
		return convertMap(c, v, depth)
	}
	return v, nil
}

func (c *conversion) list(v []any, depth int) ([]any, error) { return convertList(c, v, depth) }

func convertList[T any](c *conversion, v []T, depth int) ([]any, error) {
	if err := c.enter(container{unsafe.Pointer(unsafe.SliceData(v)), len(v)}, v); err != nil {
		return nil, err
	}
	defer c.leave()
	out := make([]any, len(v))
	for i, e := range v {
		var err error
		if out[i], err = c.value(e, depth+1); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return out, nil
}

func convertMap[T any](c *conversion, v map[string]T, depth int) (map[string]any, error) {
	if err := c.enter(container{reflect.ValueOf(v).UnsafePointer(), -1}, v); err != nil {
		return nil, err
	}
	defer c.leave()
	out := make(map[string]any, len(v))
	for k, e := range v {
		var err error
		if out[k], err = c.value(e, depth+1); err != nil {
			return nil, fmt.Errorf("[%q]: %w", k, err)
		}
	}
	return out, nil
}

// written waits until what the function has told devices to write into its arguments is there:
// what dpctl and dpnp have submitted on queues that only Python's side knows. Taking an array from
// Python waits for the queue that dpctl keeps for its memory once that queue is known, and asking
// for it makes it so.
func (c *conversion) written() error {
	for _, o := range c.usm {
		q, err := o.Attr("sycl_queue")
		if err != nil {
			return fmt.Errorf("waiting for what was written into its arguments: %w", err)
		}
		q.Release()
		same, err := pymodule.FromPython(o)
		if err != nil {
			return fmt.Errorf("waiting for what was written into its arguments: %w", err)
		}
		same.Release()
	}
	return nil
}

// fromPython converts a result. Every array in it is the caller's.
func fromPython(o *python.Object) (any, error) {
	v, err := o.Value()
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	out, err := arraysIn(v)
	if err != nil {
		release(v)
		return nil, fmt.Errorf("result: %w", err)
	}
	return out, nil
}

// arraysIn replaces the objects in a converted value by arrays, in place. After an error
// release takes what is left of either.
func arraysIn(v any) (any, error) {
	switch v := v.(type) {
	case *python.Object:
		a, err := pymodule.FromPython(v)
		if err != nil {
			return nil, fmt.Errorf("%v is neither a plain value nor an array: %w", v, err)
		}
		v.Release()
		return a, nil
	case []any:
		return v, replaceAll(v)
	case python.Tuple:
		return v, replaceAll(v)
	case map[string]any:
		for k, e := range v {
			a, err := arraysIn(e)
			if err != nil {
				return nil, fmt.Errorf("[%q]: %w", k, err)
			}
			v[k] = a
		}
	case map[any]any:
		for k, e := range v {
			a, err := arraysIn(e)
			if err != nil {
				return nil, fmt.Errorf("[%v]: %w", k, err)
			}
			v[k] = a
		}
	}
	return v, nil
}

func replaceAll(list []any) error {
	for i, e := range list {
		a, err := arraysIn(e)
		if err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
		list[i] = a
	}
	return nil
}

// release gives up the arrays and objects in a result that nobody gets.
func release(v any) {
	switch v := v.(type) {
	case *python.Object:
		v.Release()
	case *usmarray.Array:
		v.Release()
	case []any:
		for _, e := range v {
			release(e)
		}
	case python.Tuple:
		release([]any(v))
	case map[string]any:
		for _, e := range v {
			release(e)
		}
	case map[any]any:
		for k, e := range v {
			release(k)
			release(e)
		}
	}
}
