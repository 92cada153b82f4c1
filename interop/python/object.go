package python

import (
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
)

// liveObjects counts owned references held by Objects.
var liveObjects atomic.Int64

// lostObjects counts Objects that were collected by Go without a Release.
var lostObjects atomic.Int64

// LiveObjects returns how many Objects own a reference now: those not released and
// not yet collected. A test that releases all it made sees it return to where it
// was.
func LiveObjects() int64 { return liveObjects.Load() }

// LostObjects returns how many Objects Go's garbage collector has found without a
// Release since the process began. Their references are given up at the next entry
// into Python; the count tells that a Release is missing somewhere.
func LostObjects() int64 { return lostObjects.Load() }

// Object is a reference to a Python object. An owned one (everything that this
// package returns, unless it says "borrowed") keeps the object alive until Release.
// Methods may be called from any goroutine; each takes the GIL for its duration,
// or uses the one that Interpreter.With holds. After Release every method but
// Release panics. An Object that is forgotten is released some time after it was
// collected, which LostObjects counts.
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
	runtime.AddCleanup(o, opDecrefLater, p)
	return o
}

func borrow(p ptr) *Object {
	o := &Object{}
	o.p.Store((*byte)(p))
	return o
}

// FromPointer wraps a PyObject*, taking over one reference. nil gives nil.
func FromPointer(p ptr) *Object {
	if p == nil {
		return nil
	}
	return own(p)
}

// Borrow wraps a PyObject* that someone else keeps alive for as long as the Object
// is used: the argument of a callback, the member of a container. Retain makes an
// owned one. nil gives nil.
func Borrow(p ptr) *Object {
	if p == nil {
		return nil
	}
	return borrow(p)
}

// ptr returns the PyObject*, and panics after Release. Callers keep o alive.
func (o *Object) ptr() ptr {
	if o == nil {
		panic("python: nil *Object used")
	}
	p := o.p.Load()
	if p == nil {
		panic("python: Object used after Release, or an argument of a callback after it returned")
	}
	return ptr(p)
}

// Pointer returns the PyObject*, borrowed: it is valid while o is. Keep o reachable
// (runtime.KeepAlive) while C uses it.
func (o *Object) Pointer() ptr { return o.ptr() }

// Take returns the PyObject* as a new reference, for C code that takes it over; o
// itself stays as it is.
func (o *Object) Take() (ptr, error) {
	r := opIncref(o.ptr())
	runtime.KeepAlive(o)
	if r.code != codeOK {
		return nil, r.err()
	}
	return o.ptr(), nil
}

// Retain returns an owned Object of the same Python object.
func (o *Object) Retain() (*Object, error) {
	p, err := o.Take()
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
	return opGetAttr(o.ptr(), name).object()
}

// SetAttr sets an attribute to a value that New can convert.
func (o *Object) SetAttr(name string, value any) error {
	defer runtime.KeepAlive(o)
	v, err := convert(value)
	if err != nil {
		return err
	}
	defer opDecref(v)
	return opSetAttr(o.ptr(), name, v).err()
}

// DelAttr deletes an attribute.
func (o *Object) DelAttr(name string) error {
	defer runtime.KeepAlive(o)
	return opSetAttr(o.ptr(), name, nil).err()
}

// HasAttr reports whether the attribute exists; errors other than AttributeError
// are returned.
func (o *Object) HasAttr(name string) (bool, error) {
	v, err := o.Attr(name)
	if err == nil {
		v.Release()
		return true, nil
	}
	if isException(err, AttributeError) {
		return false, nil
	}
	return false, err
}

// Item returns o[key].
func (o *Object) Item(key any) (*Object, error) {
	defer runtime.KeepAlive(o)
	k, err := convert(key)
	if err != nil {
		return nil, err
	}
	defer opDecref(k)
	return opGetItem(o.ptr(), k).object()
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
	return opSetItem(o.ptr(), k, v).err()
}

// DelItem does del o[key].
func (o *Object) DelItem(key any) error {
	defer runtime.KeepAlive(o)
	k, err := convert(key)
	if err != nil {
		return err
	}
	defer opDecref(k)
	return opSetItem(o.ptr(), k, nil).err()
}

// Len returns len(o).
func (o *Object) Len() (int, error) {
	defer runtime.KeepAlive(o)
	r := opLen(o.ptr())
	return int(r.num), r.err()
}

// Truth returns bool(o).
func (o *Object) Truth() (bool, error) {
	defer runtime.KeepAlive(o)
	r := opTruth(o.ptr())
	return r.num == 1, r.err()
}

// IsNone reports whether o is None.
func (o *Object) IsNone() bool { return o.ptr() == opNone() }

// Is reports whether both are the same Python object.
func (o *Object) Is(other *Object) bool { return o.ptr() == other.ptr() }

// Equal returns o == other, as Python decides.
func (o *Object) Equal(other any) (bool, error) {
	defer runtime.KeepAlive(o)
	v, err := convert(other)
	if err != nil {
		return false, err
	}
	defer opDecref(v)
	r := opEqual(o.ptr(), v)
	return r.num == 1, r.err()
}

// IsInstance returns isinstance(o, class).
func (o *Object) IsInstance(class *Object) (bool, error) {
	defer runtime.KeepAlive(o)
	defer runtime.KeepAlive(class)
	r := opIsInstance(o.ptr(), class.ptr())
	return r.num == 1, r.err()
}

// Type returns the name of the object's class: "int", "numpy.ndarray".
func (o *Object) Type() (string, error) { return o.text(textType) }

// Str returns str(o).
func (o *Object) Str() (string, error) { return o.text(textStr) }

// Repr returns repr(o).
func (o *Object) Repr() (string, error) { return o.text(textRepr) }

func (o *Object) text(what int) (string, error) {
	defer runtime.KeepAlive(o)
	s, r := opText(o.ptr(), what)
	return s, r.err()
}

// String returns repr(o) for printing, or says why there is none.
func (o *Object) String() string {
	if o == nil || o.p.Load() == nil {
		return "<released Python object>"
	}
	s, err := o.Repr()
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
		it, err := opIter(o.ptr()).object()
		runtime.KeepAlive(o)
		if err != nil {
			yield(nil, err)
			return
		}
		defer it.Release()
		for {
			r := opNext(it.ptr())
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

// Kwargs are the keyword arguments of a call; the order does not matter to Python
// functions that take them by name, and is not kept.
type Kwargs map[string]any

// Call calls o with positional arguments that New can convert; a last argument of
// type Kwargs gives keyword arguments.
func (o *Object) Call(args ...any) (*Object, error) {
	defer runtime.KeepAlive(o)
	a, err := arguments(nil, args)
	if err != nil {
		return nil, err
	}
	defer a.release()
	return opCall(o.ptr(), a.refs, a.npos, a.kwnames).object()
}

// Method calls the method of that name: o.name(args...). Arguments are as in Call.
func (o *Object) Method(name string, args ...any) (*Object, error) {
	defer runtime.KeepAlive(o)
	a, err := arguments(o.ptr(), args)
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
	r := opFromList(names, true)
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
