package python

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

// Vars are the variables of a piece of code by name, values as Interpreter.New converts them.
type Vars map[string]any

// Import imports a module by its full name.
func (py *Interpreter) Import(name string) (*Object, error) {
	if err := py.there(); err != nil {
		return nil, err
	}
	return opImport(name).object()
}

// New converts a Go value to a new Python object:
//
//	nil                           None
//	bool                          bool
//	integers, *big.Int            int
//	floats                        float
//	complex                       complex
//	string                        str
//	[]byte                        bytes (copied)
//	slices, arrays                list
//	Tuple                         tuple
//	maps                          dict
//	*Object                       the same object
//	Func, Go functions            a function
//	error                         an exception instance
//
// and named types and pointers to these by what they are.
//
// A Go function of any type, func(int) (int, error), becomes one that takes its
// parameters by position, as As converts them; an *Object is borrowed, as in Args,
// and Objects inside of others are the function's to release. If the first parameter is
// a context.Context, it is not Python's to give: it is the one of the Object.CallContext
// that the thread is in, or context.Background. A last result that is an error is
// raised as a Func's is; several others make a tuple. The function stays as long as the
// Python object does, and runs on whatever thread calls it, as a Func does.
//
// Other types, structs among them, a value that
// contains itself (ErrCycle) and one nested too deep (ErrTooDeep) are a
// *ConversionError, whose text says where in the value: value[2]["a"].
func (py *Interpreter) New(v any) (*Object, error) {
	if err := py.there(); err != nil {
		return nil, err
	}
	return newObject(v)
}

func newObject(v any) (*Object, error) {
	p, err := convert(v)
	if err != nil {
		return nil, err
	}
	return own(p), nil
}

// Func makes a Python function of a Go one. The name is what tracebacks and repr
// show, doc its __doc__.
func (py *Interpreter) Func(name, doc string, f Func) (*Object, error) {
	if err := py.there(); err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("python: Func %s: the Go function is nil", name)
	}
	p, err := newFunction(name, doc, f)
	if err != nil {
		return nil, err
	}
	return own(p), nil
}

// Run executes statements in a namespace of their own with the variables in, and
// returns the variables named in out, as Value converts them (an Object in the
// result is the caller's to release). A missing one is a KeyError.
func (py *Interpreter) Run(code string, in Vars, out ...string) (map[string]any, error) {
	return py.exec("<go>", code, in, out)
}

func (py *Interpreter) exec(filename, code string, in Vars, out []string) (result map[string]any, err error) {
	err = py.With(func() error {
		globals, err := py.namespace("__go__", in)
		if err != nil {
			return err
		}
		// Functions defined by the code and these globals refer to each other; the
		// collector of Python takes them.
		defer globals.Release()
		if err := execute(filename, code, globals); err != nil {
			return err
		}
		result = make(map[string]any, len(out))
		for _, name := range out {
			if result[name], err = variable(globals, name); err != nil {
				releaseAll(slices.Collect(maps.Values(result)))
				result = nil
				return fmt.Errorf("variable %s: %w", name, err)
			}
		}
		return nil
	})
	return result, err
}

func variable(globals *Object, name string) (any, error) {
	o, err := globals.Item(name)
	if err != nil {
		return nil, err
	}
	defer o.Release()
	return o.Value()
}

// Eval evaluates one expression with the variables in and returns its value.
func (py *Interpreter) Eval(expr string, in Vars) (result *Object, err error) {
	err = py.With(func() error {
		globals, err := py.namespace("__go__", in)
		if err != nil {
			return err
		}
		defer globals.Release()
		result, err = opRun(expr, "<go>", startEval, globals.ptr("Eval")).object()
		return err
	})
	return result, err
}

// Module makes a module of Python source text, registers it under its name in
// sys.modules, executes it and returns it. Its functions can then be called from Go
// by Method, and imported by Python code. On an error nothing stays registered.
func (py *Interpreter) Module(name, source string) (mod *Object, err error) {
	err = py.With(func() error {
		if mod, err = py.newModule(name); err != nil {
			return err
		}
		modules, err := py.sysModules()
		if err != nil {
			mod.Release()
			return err
		}
		defer modules.Release()
		if err = py.loadModule(mod, modules, name, source); err != nil {
			mod.Release()
			mod = nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return mod, nil
}

func (py *Interpreter) newModule(name string) (*Object, error) {
	types, err := py.Import("types")
	if err != nil {
		return nil, err
	}
	defer types.Release()
	return types.Method("ModuleType", name)
}

func (py *Interpreter) sysModules() (*Object, error) {
	sys, err := py.Import("sys")
	if err != nil {
		return nil, err
	}
	defer sys.Release()
	return sys.Attr("modules")
}

func (py *Interpreter) loadModule(mod, modules *Object, name, source string) error {
	filename := "<go module " + name + ">"
	if err := py.rememberSource(filename, source); err != nil {
		return err
	}
	globals, err := mod.Attr("__dict__")
	if err != nil {
		return err
	}
	defer globals.Release()
	if err := py.addBuiltins(globals); err != nil {
		return err
	}
	before, err := modules.Method("get", name)
	if err != nil {
		return err
	}
	defer before.Release()
	if err := modules.SetItem(name, mod); err != nil {
		return err
	}
	if err := execute(filename, source, globals); err != nil {
		if before.IsNone() {
			return errors.Join(err, modules.delItem(name))
		}
		return errors.Join(err, modules.SetItem(name, before))
	}
	return nil
}

// rememberSource lets tracebacks show the lines of a module that is no file.
func (py *Interpreter) rememberSource(filename, source string) error {
	linecache, err := py.Import("linecache")
	if err != nil {
		return err
	}
	defer linecache.Release()
	cache, err := linecache.Attr("cache")
	if err != nil {
		return err
	}
	defer cache.Release()
	text, err := newObject(source)
	if err != nil {
		return err
	}
	defer text.Release()
	lines, err := text.Method("splitlines", true)
	if err != nil {
		return err
	}
	defer lines.Release()
	return cache.SetItem(filename, Tuple{len(source), nil, lines, filename})
}

// namespace makes the globals of a piece of code.
func (py *Interpreter) namespace(name string, in Vars) (*Object, error) {
	globals, err := newObject(map[string]any(in))
	if err != nil {
		return nil, err
	}
	err = globals.SetItem("__name__", name)
	if err == nil {
		err = py.addBuiltins(globals)
	}
	if err != nil {
		globals.Release()
		return nil, err
	}
	return globals, nil
}

func (py *Interpreter) addBuiltins(globals *Object) error {
	b, err := opBuiltins().object()
	if err != nil {
		return err
	}
	defer b.Release()
	return globals.SetItem("__builtins__", b)
}

// execute runs statements in the namespace.
func execute(filename, code string, globals *Object) error {
	r, err := opRun(code, filename, startFile, globals.ptr("Run")).object()
	if err != nil {
		return err
	}
	r.Release()
	return nil
}

var capsuleNames struct {
	sync.Mutex
	known map[string]ptr
}

// staticName returns a C string for name that lives for ever, one per name.
func staticName(name string) ptr {
	capsuleNames.Lock()
	defer capsuleNames.Unlock()
	if p, ok := capsuleNames.known[name]; ok {
		return p
	}
	if capsuleNames.known == nil {
		capsuleNames.known = map[string]ptr{}
	}
	p := cstring(name)
	capsuleNames.known[name] = p
	return p
}

// Capsule makes a PyCapsule with a C pointer, not nil, and a name. It has no
// destructor: whoever takes it must not need one. Names are kept for the life of
// the process, so take them from a fixed set.
func (py *Interpreter) Capsule(p unsafe.Pointer, name string) (*Object, error) {
	if err := py.there(); err != nil {
		return nil, err
	}
	return opCapsule(p, staticName(name)).object()
}

// CapsulePointer returns the pointer of a capsule of that name; another name or
// another kind of object is a ValueError.
func (o *Object) CapsulePointer(name string) (unsafe.Pointer, error) {
	defer runtime.KeepAlive(o)
	r := opCapsulePointer(o.ptr("CapsulePointer"), name)
	return r.val, r.err()
}
