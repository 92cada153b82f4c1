package python

import (
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// liveObjects counts owned references held by Objects.
var liveObjects atomic.Int64

// lostObjects counts Objects that were collected by Go without a Release.
var lostObjects atomic.Int64

// ObjectCounts returns how many Objects own a reference now, those neither released
// nor collected yet, and how many Go's garbage collector has found without a Release
// since the process began. A test that releases all it made sees live return to
// where it was. References of lost ones are given up at the next entry into Python;
// the count tells that a Release is missing somewhere.
func ObjectCounts() (live, lost int64) { return liveObjects.Load(), lostObjects.Load() }

// Object is a reference to a Python object. An owned one (everything that this
// package returns, unless it says "borrowed") keeps the object alive until Release.
// Methods may be called from any goroutine; each takes the GIL for its duration,
// or uses the one that Interpreter.With holds. On nil and after Release every method
// but Release and String panics with a *UseError. An Object that is forgotten is
// released some time after it was collected, which ObjectCounts tells.
//
// What has no method here is a call of Python's: of the modules builtins and operator,
// as the example of Method shows.
type Object struct {
	p       atomic.Pointer[byte]
	owned   bool
	cleanup runtime.Cleanup
}

// own takes over one reference.
func own(p ptr) *Object {
	o := &Object{owned: true}
	o.p.Store((*byte)(p))
	liveObjects.Add(1)
	o.cleanup = runtime.AddCleanup(o, lose, p)
	return o
}

// lose is what happens to the reference of a forgotten Object. It runs on a
// goroutine of the Go runtime and touches no Python object: the next drain does.
func lose(p ptr) {
	liveObjects.Add(-1)
	lostObjects.Add(1)
	opDecrefLater(p)
}

// ownUncounted takes over one reference that is given up when Go has collected the
// Object: nobody has to release it, so it is not among those counted as live or
// lost.
func ownUncounted(p ptr) *Object {
	o := borrow(p)
	o.cleanup = runtime.AddCleanup(o, opDecrefLater, p)
	return o
}

func borrow(p ptr) *Object {
	o := &Object{}
	o.p.Store((*byte)(p))
	return o
}

// FromPointer wraps a PyObject* of C code, taking over one reference. nil gives nil.
func FromPointer(p unsafe.Pointer) *Object {
	if p == nil {
		return nil
	}
	return own(p)
}

// ptr returns the PyObject* for the method op, and panics after Release. Callers keep
// o alive.
func (o *Object) ptr(op string) ptr {
	if o == nil {
		panic(&UseError{op, "the *Object is nil"})
	}
	p := o.p.Load()
	if p == nil {
		panic(&UseError{op, "after Release, or of an argument after the call it came with"})
	}
	return ptr(p)
}

// Pointer returns the PyObject*, borrowed: it is valid while o is. Keep o reachable
// (runtime.KeepAlive) while C uses it.
func (o *Object) Pointer() unsafe.Pointer { return o.ptr("Pointer") }

// newReference returns the PyObject* with one reference more.
func (o *Object) newReference(op string) (ptr, error) {
	defer runtime.KeepAlive(o)
	return constant(o.ptr(op))
}

// Retain returns an owned Object of the same Python object.
func (o *Object) Retain() (*Object, error) {
	p, err := o.newReference("Retain")
	if err != nil {
		return nil, err
	}
	return own(p), nil
}

// Release gives the reference up. Further calls do nothing, nor does one on nil or
// on a borrowed Object, beyond making it unusable. When Python has ended the
// reference is left alone: there is nobody to take it.
func (o *Object) Release() {
	if o == nil {
		return
	}
	p := o.p.Swap(nil)
	if p == nil || !o.owned {
		return
	}
	o.cleanup.Stop()
	liveObjects.Add(-1)
	opDecref(ptr(p))
}

// Attr returns the attribute of that name.
func (o *Object) Attr(name string) (*Object, error) {
	defer runtime.KeepAlive(o)
	return opGetAttr(o.ptr("Attr"), name).object()
}

// SetAttr sets an attribute to a value that Interpreter.New can convert.
func (o *Object) SetAttr(name string, value any) error {
	defer runtime.KeepAlive(o)
	v, err := convert(value)
	if err != nil {
		return err
	}
	defer opDecref(v)
	return opSetAttr(o.ptr("SetAttr"), name, v).err()
}

// Item returns o[key].
func (o *Object) Item(key any) (*Object, error) {
	defer runtime.KeepAlive(o)
	k, err := convert(key)
	if err != nil {
		return nil, err
	}
	defer opDecref(k)
	return opGetItem(o.ptr("Item"), k).object()
}

// SetItem does o[key] = value.
func (o *Object) SetItem(key, value any) error {
	defer runtime.KeepAlive(o)
	k, err := convert(key)
	if err != nil {
		return err
	}
	defer opDecref(k)
	v, err := convert(value)
	if err != nil {
		return err
	}
	defer opDecref(v)
	return opSetItem(o.ptr("SetItem"), k, v).err()
}

// delItem does del o[key].
func (o *Object) delItem(key any) error {
	defer runtime.KeepAlive(o)
	k, err := convert(key)
	if err != nil {
		return err
	}
	defer opDecref(k)
	return opSetItem(o.ptr("delItem"), k, nil).err()
}

// Len returns len(o).
func (o *Object) Len() (int, error) {
	defer runtime.KeepAlive(o)
	r := opLen(o.ptr("Len"))
	return int(r.num), r.err()
}

// IsNone reports whether o is None.
func (o *Object) IsNone() bool { return o.ptr("IsNone") == opNone() }

// Type returns the name of the object's class: "int", "numpy.ndarray".
func (o *Object) Type() (string, error) { return o.text("Type", textType) }

// Str returns str(o).
func (o *Object) Str() (string, error) { return o.text("Str", textStr) }

func (o *Object) text(op string, what int) (string, error) {
	defer runtime.KeepAlive(o)
	s, r := opText(o.ptr(op), what)
	return s, r.err()
}

// String returns repr(o), or says why there is none.
func (o *Object) String() string {
	if o == nil {
		return "<nil Python object>"
	}
	if o.p.Load() == nil {
		return "<released Python object>"
	}
	s, err := o.text("String", textRepr)
	if err != nil {
		return fmt.Sprintf("<Python object without repr: %v>", err)
	}
	return s
}

// All iterates over iter(o). Each element is owned by the loop's body for its
// duration and released after it; Retain one to keep it. An error ends the
// iteration and is its last element, with a nil Object.
func (o *Object) All() iter.Seq2[*Object, error] {
	return func(yield func(*Object, error) bool) {
		it, err := opIter(o.ptr("All")).object()
		runtime.KeepAlive(o)
		if err != nil {
			yield(nil, err)
			return
		}
		defer it.Release()
		for {
			r := opNext(it.ptr("All"))
			if r.code != codeOK {
				yield(nil, r.err())
				return
			}
			if r.val == nil {
				return
			}
			e := own(r.val)
			more := yield(e, nil)
			e.Release()
			if !more {
				return
			}
		}
	}
}

// Kwargs are the keyword arguments of a call, by name. Their order is not kept.
type Kwargs map[string]any

// Call calls o with positional arguments that Interpreter.New can convert; a last argument of
// type Kwargs gives keyword arguments.
func (o *Object) Call(args ...any) (*Object, error) {
	defer runtime.KeepAlive(o)
	a, err := arguments(nil, args)
	if err != nil {
		return nil, err
	}
	defer a.release()
	return opCall(o.ptr("Call"), a.refs, a.npos, a.kwnames).object()
}

// Method calls the method of that name: o.name(args...). Arguments are as in Call.
func (o *Object) Method(name string, args ...any) (*Object, error) {
	defer runtime.KeepAlive(o)
	a, err := arguments(o.ptr("Method"), args)
	if err != nil {
		return nil, err
	}
	defer a.release()
	return opMethod(name, a.refs, a.npos, a.kwnames).object()
}

// callArgs is an argument list in the form of a vectorcall.
type callArgs struct {
	refs    []ptr // positional ones, then the values of kwnames
	npos    int
	kwnames ptr
	owned   []ptr // what release gives up
}

func (a *callArgs) release() {
	for _, p := range a.owned {
		opDecref(p)
	}
	if a.kwnames != nil {
		opDecref(a.kwnames)
	}
}

// arguments converts an argument list; self, if any, comes first and is borrowed.
func arguments(self ptr, args []any) (*callArgs, error) {
	a := &callArgs{refs: make([]ptr, 0, len(args)+1)}
	if self != nil {
		a.refs = append(a.refs, self)
	}
	var kwargs Kwargs
	if n := len(args); n > 0 {
		if k, ok := args[n-1].(Kwargs); ok {
			kwargs, args = k, args[:n-1]
		}
	}
	add := func(v any) error {
		p, err := convert(v)
		if err != nil {
			a.release()
			return err
		}
		a.refs = append(a.refs, p)
		a.owned = append(a.owned, p)
		return nil
	}
	for i, v := range args {
		if err := add(v); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
	}
	a.npos = len(a.refs)
	if len(kwargs) == 0 {
		return a, nil
	}
	names := make([]ptr, 0, len(kwargs))
	for name, v := range kwargs {
		if err := add(v); err != nil {
			dropAll(names)
			return nil, fmt.Errorf("argument %s: %w", name, err)
		}
		r := opFromText(name)
		if r.code != codeOK {
			a.release()
			dropAll(names)
			return nil, r.err()
		}
		names = append(names, r.val)
	}
	r := opFromNames(names)
	if r.code != codeOK {
		a.release()
		return nil, r.err()
	}
	a.kwnames = r.val
	return a, nil
}

func dropAll(refs []ptr) {
	for _, p := range refs {
		opDecref(p)
	}
}
