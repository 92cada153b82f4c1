package python

import (
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/interop/internal/values"
)

// Vars are the global variables of Python code, by name. Values are converted as by
// Interpreter.New.
type Vars map[string]any

// Import imports a module by its full name.
func (py *Interpreter) Import(name string) (*Object, error) {
	if err := py.check(); err != nil {
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
// Named types are converted as their underlying types, and pointers as the values they
// point to.
//
// A Go function of any type becomes a Python function with positional parameters. The
// arguments are converted as by As. An *Object argument is borrowed, as in Args; the
// function releases Objects inside other arguments. If the first parameter is a
// context.Context, Python does not pass it: the function receives the context of the
// Object.CallContext on its thread, or context.Background. If the last result is an
// error, it is raised as that of a Func. Several other results become a tuple. The Go
// function is kept as long as the Python object, and runs on the calling thread.
//
// Other types, such as structs, a value that contains itself (ErrCycle) and a value
// nested too deeply (ErrTooDeep) are a *ConversionError. Its text names the position in
// the value, for example value[2]["a"].
func (py *Interpreter) New(v any) (*Object, error) {
	if err := py.check(); err != nil {
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

// Func returns a Python function that calls f. Tracebacks and repr show name; doc is
// its __doc__.
func (py *Interpreter) Func(name, doc string, f Func) (*Object, error) {
	if err := py.check(); err != nil {
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

// Run executes statements in a new namespace with the variables in. It returns the
// variables named in out, converted as by Object.Value; the caller releases Objects
// among them. A missing variable is a KeyError.
func (py *Interpreter) Run(code string, in Vars, out ...string) (map[string]any, error) {
	return py.exec("<go>", code, in, out)
}

func (py *Interpreter) exec(filename, code string, in Vars, out []string) (result map[string]any, err error) {
	err = py.With(func() error {
		globals, err := py.namespace("__go__", in)
		if err != nil {
			return err
		}
		// Functions defined by the code and the globals refer to each other. Python's
		// garbage collector frees them.
		defer globals.Release()
		if err := execute(filename, code, globals); err != nil {
			return err
		}
		result = make(map[string]any, len(out))
		for _, name := range out {
			if result[name], err = variable(globals, name); err != nil {
				values.Release(result)
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

// Module creates a module from Python source text, adds it to sys.modules, executes it
// and returns it. Go code can then call its functions with Method, and Python code can
// import it. If Module fails, sys.modules is restored. If it replaces a module of the same name, Python's garbage
// collector runs: functions and their module refer to each other, so that the memory of the former module would
// wait for the automatic collection, which counts objects and not their size.
func (py *Interpreter) Module(name, source string) (mod *Object, err error) {
	err = py.With(func() error {
		class, err := py.importAttr("types", "ModuleType")
		if err != nil {
			return err
		}
		defer class.Release()
		modules, err := py.importAttr("sys", "modules")
		if err != nil {
			return err
		}
		defer modules.Release()
		if mod, err = class.Call(name); err != nil {
			return err
		}
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

// importAttr imports a module and returns one of its attributes.
func (py *Interpreter) importAttr(module, name string) (*Object, error) {
	m, err := py.Import(module)
	if err != nil {
		return nil, err
	}
	defer m.Release()
	return m.Attr(name)
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
	if before.IsNone() {
		return nil
	}
	before.Release()
	collect, err := py.importAttr("gc", "collect")
	if err != nil {
		return err
	}
	defer collect.Release()
	n, err := collect.Call()
	n.Release()
	return err
}

// rememberSource adds source to Python's linecache, so that tracebacks show its lines.
func (py *Interpreter) rememberSource(filename, source string) error {
	cache, err := py.importAttr("linecache", "cache")
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

// namespace returns new globals with the variables in.
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

// execute runs statements in globals.
func execute(filename, code string, globals *Object) error {
	r, err := opRun(code, filename, startFile, globals.ptr("Run")).object()
	if err != nil {
		return err
	}
	r.Release()
	return nil
}
