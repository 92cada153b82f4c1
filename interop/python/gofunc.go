package python

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
)

var (
	typeContext = reflect.TypeFor[context.Context]()
	typeError   = reflect.TypeFor[error]()
	typeObject  = reflect.TypeFor[*Object]()
)

// typedFunc makes the Func of a Go function of any type, for Interpreter.New.
func typedFunc(f reflect.Value) Func {
	t := f.Type()
	return func(a Args) (any, error) {
		if len(a.Keyword) > 0 {
			return nil, fmt.Errorf("%w: a Go function of type %s takes no keyword arguments", TypeError, t)
		}
		in, err := parameters(t, a.Positional)
		if err != nil {
			return nil, err
		}
		return results(t, f.Call(in))
	}
}

// parameters converts the arguments of a call.
func parameters(t reflect.Type, args []*Object) ([]reflect.Value, error) {
	in := make([]reflect.Value, 0, t.NumIn())
	if t.NumIn() > 0 && t.In(0) == typeContext && !(t.IsVariadic() && t.NumIn() == 1) {
		in = append(in, reflect.ValueOf(currentContext()))
	}
	first, fixed := len(in), t.NumIn()-len(in)
	if t.IsVariadic() {
		fixed--
	}
	if len(args) < fixed || len(args) > fixed && !t.IsVariadic() {
		return nil, fmt.Errorf("%w: a Go function of type %s takes %d arguments, %d were given", TypeError, t, fixed, len(args))
	}
	var made []any // the values in in
	for i, o := range args {
		want := t.In(min(first+i, t.NumIn()-1))
		if t.IsVariadic() && first+i >= t.NumIn()-1 {
			want = want.Elem()
		}
		v := reflect.New(want).Elem()
		if want == typeObject {
			v.Set(reflect.ValueOf(o)) // borrowed, as in Args
		} else {
			value, err := decode(v, o)
			if err != nil {
				releaseAll(made)
				return nil, fmt.Errorf("argument %d: %w", i+1, err)
			}
			made = append(made, value)
		}
		in = append(in, v)
	}
	return in, nil
}

// results combines the results of a Go function: None, the value, or a tuple.
func results(t reflect.Type, out []reflect.Value) (any, error) {
	if n := len(out); n > 0 && t.Out(n-1) == typeError {
		if err, _ := out[n-1].Interface().(error); err != nil {
			return nil, err
		}
		out = out[:n-1]
	}
	switch len(out) {
	case 0:
		return nil, nil
	case 1:
		return out[0].Interface(), nil
	}
	list := make(Tuple, len(out))
	for i, v := range out {
		list[i] = v.Interface()
	}
	return list, nil
}

// nameOf returns the name that Python shows of a Go function: the last part of its name in Go.
func nameOf(f reflect.Value) string {
	fn := runtime.FuncForPC(f.Pointer())
	if fn == nil {
		return ""
	}
	name := fn.Name()
	if i := strings.IndexByte(name, '['); i >= 0 { // a generic one's: pkg.F[...], or a closure's in it
		end := strings.LastIndexByte(name, ']') + 1
		name = name[:i] + name[max(i, end):]
	}
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
}
