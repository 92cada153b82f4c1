package python

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Args are the arguments of a call from Python. The Objects are borrowed: they are
// valid until the function returns and panic when used later; Retain one to keep
// it.
type Args struct {
	Positional []*Object
	Keyword    map[string]*Object
}

// Func is a Go function that Python can call. It runs on the thread of the caller
// with the GIL held; what takes long without Python belongs in WithoutGIL. The
// result is converted as by Interpreter.New (an owned *Object that it returns is released
// after that). An error becomes an exception as MapError says; so does a
// panic, as a RuntimeError with the stack of the panic.
type Func func(args Args) (any, error)

// PanicError is what a panic in a Func is turned into; it is raised in Python as
// RuntimeError and comes back to Go by errors.As.
type PanicError struct {
	Value any    // what was passed to panic
	Stack string // where
}

// Error describes the panic and where it happened.
func (e *PanicError) Error() string {
	return fmt.Sprintf("panic in Go: %v\n%s", e.Value, e.Stack)
}

// callback is what the handle of a function object refers to.
type callback struct {
	name string
	fn   Func
}

// newFunction returns a new reference to a Python function.
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
		freeHandle(h) // never reached C's owner of the handle
	}
	return r.take()
}

// goCall runs a Func for Python, GIL held: a new reference, or nil with the error
// indicator set.
func goCall(handle uintptr, args, kwargs ptr) ptr {
	cb := handleValue(handle).(*callback)
	p, err := cb.run(args, kwargs)
	if err != nil {
		Raise(err)
		return nil
	}
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

// callbackArgs reads the tuple and the dict (or nil) of a call. The Objects are
// borrowed from refs.
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

// Go values that Python objects refer to: C holds a number, never a Go pointer.
// (runtime/cgo has the same, but cannot be linked without cgo.)
var (
	handles    sync.Map // uintptr to any
	lastHandle atomic.Uintptr
)

// newHandle returns a number, not 0, for v, until freeHandle.
func newHandle(v any) uintptr {
	h := lastHandle.Add(1)
	handles.Store(h, v)
	return h
}

// handleValue returns what newHandle was given, nil after freeHandle.
func handleValue(h uintptr) any {
	v, _ := handles.Load(h)
	return v
}

// freeHandle forgets the value.
func freeHandle(h uintptr) { handles.Delete(h) }
