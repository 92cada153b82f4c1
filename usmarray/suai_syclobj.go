package usmarray

import (
	"fmt"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/syclobj"
)

// SyclObj is the syclobj of a dictionary: one of three forms, each of which names
// a context. The zero value is a missing one. Values may be copied; the context
// and queue forms borrow their object. Capsules, and objects that give one, are
// Python's: interop/pymodule takes them apart, and Runtime.QueueFromRef and
// ContextFromRef make a queue or a context of what is in one.
type SyclObj struct {
	form    SyclForm
	filter  string
	context *syclobj.Context
	queue   *syclobj.Queue
}

// SyclForm names the forms.
type SyclForm uint8

const (
	// SyclNone is a missing syclobj.
	SyclNone SyclForm = iota
	// SyclFilter is a filter string ("opencl:cpu:0"): the default context of
	// that root device's platform.
	SyclFilter
	// SyclContext is a context.
	SyclContext
	// SyclQueue is a queue; its context counts, and copies use it.
	SyclQueue
)

// String names the form as it is seen from Python.
func (f SyclForm) String() string {
	switch f {
	case SyclNone:
		return "none"
	case SyclFilter:
		return "filter string"
	case SyclContext:
		return "SyclContext"
	case SyclQueue:
		return "SyclQueue"
	}
	return fmt.Sprintf("SyclForm(%d)", uint8(f))
}

// ByFilter names the default context of a root device.
func ByFilter(filter string) SyclObj { return SyclObj{form: SyclFilter, filter: filter} }

// ByContext names a context.
func ByContext(c *syclobj.Context) SyclObj { return SyclObj{form: SyclContext, context: c} }

// ByQueue names the context of a queue.
func ByQueue(q *syclobj.Queue) SyclObj { return SyclObj{form: SyclQueue, queue: q} }

// Form tells which form it is.
func (o SyclObj) Form() SyclForm { return o.form }

// Filter is the filter string of a SyclFilter, else "".
func (o SyclObj) Filter() string { return o.filter }

// Context is the context of a SyclContext, else nil; borrowed.
func (o SyclObj) Context() *syclobj.Context { return o.context }

// Queue is the queue of a SyclQueue, else nil; borrowed.
func (o SyclObj) Queue() *syclobj.Queue { return o.queue }

// resolved is the context or queue of a syclobj, borrowed.
type resolved struct {
	context *syclobj.Context
	queue   *syclobj.Queue
	device  *syclobj.Device // of a filter string
}

// resolve finds the context. Nothing is copied.
func (o *SyclObj) resolve(op string, rt *syclobj.Runtime) (resolved, error) {
	switch o.form {
	case SyclContext:
		if o.context == nil {
			return resolved{}, keyErr(op, "syclobj", "the context is nil")
		}
		return resolved{context: o.context}, nil
	case SyclQueue:
		if o.queue == nil {
			return resolved{}, keyErr(op, "syclobj", "the queue is nil")
		}
		return resolved{queue: o.queue}, nil
	case SyclFilter:
		return resolveFilter(op, rt, o.filter)
	}
	return resolved{}, keyErr(op, "syclobj", "missing; give a filter string, a context or a queue")
}

// nilRuntime is the error of a syclobj that needs a Runtime to be resolved.
func nilRuntime(op string) error {
	return keyErr(op, "syclobj", "the Runtime is nil; give one from syclobj.Open")
}

// filterHit is the filter string that was resolved last: a program names few,
// and comparing one is cheaper than any table.
type filterHit struct {
	rt     *syclobj.Runtime
	filter string
	found  resolved
}

var lastFilter atomic.Pointer[filterHit]

// resolveFilter finds the default context of a device's platform. Whether the
// Runtime is still open is asked by whoever uses the context.
func resolveFilter(op string, rt *syclobj.Runtime, filter string) (resolved, error) {
	if h := lastFilter.Load(); h != nil && h.rt == rt && h.filter == filter {
		return h.found, nil
	}
	if rt == nil {
		return resolved{}, nilRuntime(op)
	}
	d, err := rt.Device(filter)
	if err != nil {
		return resolved{}, &OpError{Op: op, Key: "syclobj", Kind: ErrInterface, Err: err}
	}
	r := resolved{context: d.DefaultContext(), device: d}
	lastFilter.Store(&filterHit{rt, filter, r})
	return r, nil
}
