package executor

import (
	"fmt"

	"github.com/usmbridge/usmbridge/interop/internal/values"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
)

// fromPython converts a result. The caller owns the arrays in it.
func fromPython(o *python.Object) (any, error) {
	v, err := o.Value()
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	out, err := arraysIn(v)
	if err != nil {
		values.Release(v)
		return nil, fmt.Errorf("result: %w", err)
	}
	return out, nil
}

// arraysIn replaces the objects in a converted value by arrays, in place. After an error v contains
// objects and arrays; release releases them.
func arraysIn(v any) (any, error) {
	switch v := v.(type) {
	case *python.Object:
		a, err := pymodule.FromPython(v)
		if err != nil {
			name, typeErr := v.Type() // not its text, which can contain the user's data
			if typeErr != nil {
				name = "unknown type"
			}
			return nil, fmt.Errorf("%s: not a plain value, and not readable as an array: %w", name, err)
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

// replaceAll is arraysIn for each element of a list.
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
