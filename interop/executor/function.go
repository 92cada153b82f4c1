package executor

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/interop/python"
)

// callable is a function that has been found.
type callable struct {
	object *python.Object
	last   atomic.Int64 // nanoseconds of the call that ended last; 0: none has
}

// function finds the Python function of a name: imported once, and kept until Close.
// The GIL is held.
func (e *Executor) function(name string) (*callable, error) {
	if f, ok := e.functions.Load(name); ok {
		return f.(*callable), nil
	}
	module, path, ok := strings.Cut(name, ":")
	if !ok || module == "" || path == "" {
		return nil, fmt.Errorf("%q names no function: wanted \"module:name\": %w", name, python.ValueError)
	}
	o, err := e.py.Import(module)
	for part := range strings.SplitSeq(path, ".") {
		if err != nil {
			return nil, err
		}
		var next *python.Object
		next, err = o.Attr(part)
		o.Release()
		o = next
	}
	if err != nil {
		return nil, err
	}
	f := &callable{object: o}
	if before, loaded := e.functions.LoadOrStore(name, f); loaded {
		o.Release()
		return before.(*callable), nil
	}
	return f, nil
}
