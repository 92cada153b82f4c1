package python

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/interop/internal/goexit"
	"github.com/usmbridge/usmbridge/interop/internal/values"
)

// Args are the arguments of a call from Python. The Objects are borrowed. They are
// valid until the function returns, and their methods panic after that; Retain one to
// keep it.
type Args struct {
	Positional []*Object
	Keyword    map[string]*Object
}

// Func is a Go function that Python can call. It runs on the thread of the caller with
// the GIL held; do long work that does not need Python in WithoutGIL. The result is
// converted as by Interpreter.New. If it is an owned *Object, it is then released. An
// error is raised as the exception that the package comment describes. A panic is raised as a
// RuntimeError with the stack of the panic.
//
// The function must return or panic. It must not call runtime.Goexit, as FailNow and Fatal of a
// testing.T and the functions of testify's require do: the frames of Python below it cannot be
// unwound. The program then ends with a panic that names the function and cannot be recovered.
// Return an error instead.
type Func func(args Args) (any, error)

// PanicError is the error of a panic in a Func. Python receives it as a RuntimeError.
// If that exception reaches Go, errors.As finds the PanicError.
type PanicError struct {
	Value any    // the argument of panic
	Stack string // the stack at the panic
}

// Error returns the value of the panic and its stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic in Go: %v\n%s", e.Value, e.Stack)
}

// callback is the Go value behind the handle of a Python function.
type callback struct {
	name string
	fn   Func
}

// newFunction returns a new reference to a Python function that calls f.
func newFunction(name, doc string, f Func) (ptr, error) {
	if f == nil {
		return constant(opNone())
	}
	if name == "" {
		name = "go_function"
	}
	h := newHandle(&callback{name, f})
	r := opFunction(h, name, doc)
	if r.code != codeOK && r.code != codeException {
		freeHandle(h) // C created no function object that would free it
	}
	return r.take()
}

// goCall runs a Func for Python, with the GIL held. It returns a new reference, or nil
// with the error indicator set.
func goCall(handle uintptr, args, kwargs ptr) ptr {
	cb := handleValue(handle).(*callback)
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			panic(v) // not of the Func, whose panics run recovers
		}
		goexit.End("python: the Go function " + cb.name)
	}()
	p, err := cb.run(args, kwargs)
	if err != nil {
		Raise(err)
		p = nil
	}
	returned = true
	return p
}

func (cb *callback) run(args, kwargs ptr) (p ptr, err error) {
	a, refs, err := callbackArgs(args, kwargs)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, o := range a.Positional {
			o.Release()
		}
		for _, o := range a.Keyword {
			o.Release()
		}
		dropAll(refs)
	}()
	defer func() {
		if v := recover(); v != nil {
			p, err = nil, &PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	v, err := cb.fn(a)
	if err != nil {
		return nil, err
	}
	p, err = convert(v)
	if o, ok := v.(*Object); ok && o != nil && o.owned {
		o.Release()
	}
	if err != nil {
		return nil, fmt.Errorf("result of %s: %w", cb.name, err)
	}
	return p, nil
}

// callbackArgs returns the arguments of a call: a tuple, and a dict or nil. The Objects
// borrow from refs, which the caller releases.
func callbackArgs(args, kwargs ptr) (a Args, refs []ptr, err error) {
	n := opLen(args)
	if n.code != codeOK {
		return a, nil, n.err()
	}
	refs = make([]ptr, n.num)
	if r := opItems(args, refs); r.code != codeOK {
		return a, nil, r.err()
	}
	for _, p := range refs {
		a.Positional = append(a.Positional, borrow(p))
	}
	if kwargs == nil {
		return a, refs, nil
	}
	n = opLen(kwargs)
	kv := make([]ptr, 2*n.num)
	if r := opDictItems(kwargs, kv); r.code != codeOK {
		dropAll(refs)
		return a, nil, r.err()
	}
	a.Keyword = make(map[string]*Object, n.num)
	for i := 0; i < len(kv); i += 2 {
		name, r := opText(kv[i], textValue)
		if r.code != codeOK {
			dropAll(refs)
			dropAll(kv)
			return a, nil, r.err()
		}
		a.Keyword[name] = borrow(kv[i+1])
	}
	return a, append(refs, kv...), nil
}

var (
	typeContext = reflect.TypeFor[context.Context]()
	typeError   = reflect.TypeFor[error]()
	typeObject  = reflect.TypeFor[*Object]()
)

// typedFunc returns a Func that calls a Go function of any type.
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

// parameters converts the arguments of a call to the parameters of a function of type t.
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
	var made []any // the converted values, to release after an error
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
				values.Release(made)
				return nil, fmt.Errorf("argument %d: %w", i+1, err)
			}
			made = append(made, value)
		}
		in = append(in, v)
	}
	return in, nil
}

// results combines the results of a Go function: nil, the value, or a Tuple. If the last
// result is a non-nil error, it returns that error.
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

// nameOf returns the last part of a Go function's name, as the name of the Python function.
func nameOf(f reflect.Value) string {
	fn := runtime.FuncForPC(f.Pointer())
	if fn == nil {
		return ""
	}
	name := fn.Name()
	if i := strings.IndexByte(name, '['); i >= 0 { // a generic function, pkg.F[...], or a closure in one
		end := strings.LastIndexByte(name, ']') + 1
		name = name[:i] + name[max(i, end):]
	}
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '.')+1:], "-fm")
}

// handles holds the Go values that Python objects refer to. C holds the key, never a Go
// pointer. It replaces runtime/cgo.Handle, which cannot be linked without cgo.
var (
	handles    sync.Map // uintptr to any
	lastHandle atomic.Uintptr
)

// newHandle stores v until freeHandle and returns its handle, which is not 0.
func newHandle(v any) uintptr {
	h := lastHandle.Add(1)
	handles.Store(h, v)
	return h
}

// handleValue returns the value of a handle, or nil after freeHandle.
func handleValue(h uintptr) any {
	v, _ := handles.Load(h)
	return v
}

// freeHandle removes the value of a handle.
func freeHandle(h uintptr) { handles.Delete(h) }
