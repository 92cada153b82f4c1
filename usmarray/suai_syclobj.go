package usmarray

import (
	"sync/atomic"

	"github.com/usmbridge/usmbridge/syclobj"
)

// SyclObj is the syclobj of a dictionary, which names the context of the memory. Set exactly one field;
// the zero value is a missing syclobj. It is a value that borrows its context or queue. The forms that
// only Python has (capsules, objects with _get_capsule) are unpacked by interop/pymodule;
// Runtime.QueueFromRef and ContextFromRef copy the reference in a capsule.
type SyclObj struct {
	// Filter is a filter string ("opencl:cpu:0"): the default context of that root device's platform.
	Filter string
	// Context is the context itself.
	Context *syclobj.Context
	// Queue names its context, and is used for copies.
	Queue *syclobj.Queue
}

// resolved is the context or queue of a syclobj, borrowed: both for a filter string.
type resolved struct {
	context *syclobj.Context
	queue   *syclobj.Queue
	device  *syclobj.Device // of a filter string
}

// resolve finds the context. It copies nothing.
func (o *SyclObj) resolve(op string, rt *syclobj.Runtime) (resolved, error) {
	switch {
	case o.Queue != nil && o.Context == nil && o.Filter == "":
		return resolved{queue: o.Queue}, nil
	case o.Context != nil && o.Queue == nil && o.Filter == "":
		return resolved{context: o.Context}, nil
	case o.Filter != "" && o.Queue == nil && o.Context == nil:
		return resolveFilter(op, rt, o.Filter)
	case *o == SyclObj{}:
		return resolved{}, keyErr(op, "syclobj", "nil or missing; set the filter string, the context or the queue")
	}
	return resolved{}, keyErr(op, "syclobj", "several forms are set; set only one of filter string, context and queue")
}

// nilRuntime returns the error of a syclobj that needs a Runtime.
func nilRuntime(op string) error {
	return keyErr(op, "syclobj", "the Runtime is nil; give one from syclobj.Open")
}

// filterHit is the last resolved filter string: programs use few of them, and one comparison is cheaper
// than a table.
type filterHit struct {
	rt     *syclobj.Runtime
	filter string
	found  resolved
}

var lastFilter atomic.Pointer[filterHit]

// resolveFilter returns the default context of a device's platform. The user of the context checks whether
// the Runtime is still open.
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
	q, _ := d.DefaultQueue() // nil if the device has none
	r := resolved{context: d.DefaultContext(), queue: q, device: d}
	lastFilter.Store(&filterHit{rt, filter, r})
	return r, nil
}

// QueueOn returns a queue for a syclobj of any form: the queue itself; a queue on the first device of a
// context; or the default queue of a filter string's device. Sub-devices, contexts of several devices,
// in-order and profiling queues are supported, and the filter string "host" selects the host backend's
// queue. To allocate there, use memmgr.Default(q, kind) or a resource of your own.
//
// release frees the objects that were created for the call; it is never nil, and memory that was allocated
// on the queue stays valid after it. Errors: ErrInterface.
func QueueOn(rt *syclobj.Runtime, obj SyclObj) (q *syclobj.Queue, release func(), err error) {
	const op = "QueueOn"
	if rt == nil {
		return nil, nothing, nilRuntime(op)
	}
	at, err := obj.resolve(op, rt)
	if err != nil {
		return nil, nothing, err
	}
	if q, release, err = at.queueFor(rt); err != nil {
		return nil, nothing, &OpError{Op: op, Key: "syclobj", Kind: ErrInterface, Err: err}
	}
	return q, release, nil
}

func nothing() {}

func (r *resolved) queueFor(rt *syclobj.Runtime) (q *syclobj.Queue, release func(), err error) {
	if r.queue != nil {
		return r.queue, nothing, nil
	}
	d, closeDevices := r.device, nothing
	if d == nil {
		devices, err := r.context.Devices()
		if err != nil {
			return nil, nil, err
		}
		d = devices[0] // a context has at least one
		closeDevices = func() {
			for _, d := range devices {
				_ = d.Close() // cannot fail
			}
		}
	}
	if r.context.IsDefault() && !d.IsSubDevice() {
		defer closeDevices()
		q, err = d.DefaultQueue()
		return q, nothing, err
	}
	if q, err = rt.NewQueue(r.context, d, syclobj.InOrder); err != nil {
		closeDevices()
		return nil, nil, err
	}
	return q, func() { _ = q.Close(); closeDevices() }, nil
}
