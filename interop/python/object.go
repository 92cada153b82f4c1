package python

import (
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
	"unsafe"
)

var liveObjects, lostObjects atomic.Int64

// ObjectCounts returns the number of Objects that own a reference now (live) and the
// number that Go collected without a Release since the process began (lost). A test
// that releases all its Objects sees live return to its value before. If lost grows,
// a Release is missing. The next operation in Python releases the references of lost
// Objects.
func ObjectCounts() (live, lost int64) { return liveObjects.Load(), lostObjects.Load() }

// Object is a reference to a Python object. Objects that this package returns are
// owned, unless documented as borrowed: an owned Object keeps the Python object alive
// until Release. Methods may be called from any goroutine. Each acquires the GIL for
// its duration, or uses the GIL that Interpreter.With holds. If the Object is nil or
// released, every method except Release and String panics with a *UseError. If Go
// collects an owned Object that was not released, ObjectCounts counts it as lost.
//
// For operations without a method, call the functions of the Python modules builtins
// and operator, as in the example of Method.
type Object struct {
	p       atomic.Pointer[byte]
	owned   bool
	cleanup runtime.Cleanup
}

// own returns an Object that takes over one reference.
func own(p ptr) *Object {
	o := &Object{owned: true}
	o.p.Store((*byte)(p))
	liveObjects.Add(1)
	o.cleanup = runtime.AddCleanup(o, lose, p)
	return o
}

// lose is the cleanup of an owned Object. It runs on a goroutine of the Go runtime,
// which must not wait for the GIL, so it queues the reference for the next drain.
func lose(p ptr) {
	liveObjects.Add(-1)
	lostObjects.Add(1)
	opDecrefLater(p)
}

// ownUncounted returns an Object that takes over one reference and releases it when
// Go collects the Object. It needs no Release, so ObjectCounts does not count it.
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

// FromPointer wraps a PyObject* of C code and takes over one reference. It returns nil
// for nil.
func FromPointer(p unsafe.Pointer) *Object {
	if p == nil {
		return nil
	}
	return own(p)
}

// ptr returns the PyObject*. It panics with a *UseError for the method op if o is nil
// or released. Callers keep o alive.
func (o *Object) ptr(op string) ptr {
	if o == nil {
		panic(&UseError{op, errNilObject})
	}
	p := o.p.Load()
	if p == nil {
		panic(&UseError{op, errReleasedObject})
	}
	return ptr(p)
}

// Pointer returns the PyObject* as a borrowed reference, which is valid until o is
// released. Keep o reachable (runtime.KeepAlive) while C uses it.
func (o *Object) Pointer() unsafe.Pointer { return o.ptr("Pointer") }

// newReference returns the PyObject* as a new reference.
func (o *Object) newReference(op string) (ptr, error) {
	defer runtime.KeepAlive(o)
	return constant(o.ptr(op))
}

// Retain returns another owned Object for the same Python object.
func (o *Object) Retain() (*Object, error) {
	p, err := o.newReference("Retain")
	if err != nil {
		return nil, err
	}
	return own(p), nil
}

// Release releases the reference and makes o unusable. On a borrowed Object it only
// makes o unusable. It does nothing on nil or when called again. After the end of
// Python the reference is leaked.
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

// Attr returns the attribute called name.
func (o *Object) Attr(name string) (*Object, error) {
	defer runtime.KeepAlive(o)
	return opGetAttr(o.ptr("Attr"), name).object()
}

// SetAttr sets an attribute to value, converted as by Interpreter.New.
func (o *Object) SetAttr(name string, value any) error {
	defer runtime.KeepAlive(o)
	v, err := convert(value)
	if err != nil {
		return err
	}
	defer opDecref(v)
	return opSetAttr(o.ptr("SetAttr"), name, v).err()
}

// Item returns o[key], with key converted as by Interpreter.New.
func (o *Object) Item(key any) (*Object, error) {
	defer runtime.KeepAlive(o)
	k, err := convert(key)
	if err != nil {
		return nil, err
	}
	defer opDecref(k)
	return opGetItem(o.ptr("Item"), k).object()
}

// SetItem sets o[key] to value. Both are converted as by Interpreter.New.
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

// delItem deletes o[key].
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

func (o *Object) text(op string, kind int) (string, error) {
	defer runtime.KeepAlive(o)
	s, r := opText(o.ptr(op), kind)
	return s, r.err()
}

// String returns repr(o), or a placeholder with the error if repr fails.
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

// All returns an iterator over iter(o). Each element is released after the loop body;
// Retain it to keep it. If an error occurs, the iteration yields it with a nil Object
// and ends.
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

// Kwargs are the keyword arguments of a call, by name. They are passed in no
// particular order.
type Kwargs map[string]any

// Call calls o. The arguments are converted as by Interpreter.New and passed by
// position, except a last argument of type Kwargs, which holds keyword arguments.
func (o *Object) Call(args ...any) (*Object, error) {
	defer runtime.KeepAlive(o)
	a, err := arguments(nil, args)
	if err != nil {
		return nil, err
	}
	defer a.release()
	return opCall(o.ptr("Call"), a.refs, a.npos, a.kwnames).object()
}

// Method calls o.name(args...). The arguments are as in Call.
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
	refs    []ptr // positional arguments, then the values of kwnames
	npos    int
	kwnames ptr   // a tuple of str, or nil
	owned   []ptr // the elements of refs that release releases
}

func (a *callArgs) release() {
	dropAll(a.owned)
	if a.kwnames != nil {
		opDecref(a.kwnames)
	}
}

// arguments converts an argument list. self, if not nil, is borrowed and placed first.
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
