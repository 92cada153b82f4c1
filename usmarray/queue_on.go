package usmarray

import (
	"github.com/usmbridge/usmbridge/syclobj"
)

// QueueOn is a queue where a syclobj says, in any of its forms: the queue itself; for
// a context one on its first device; for a filter string the default queue of that
// device. Sub-devices, contexts over several devices, in-order and profiling queues all
// do, and the filter string "host" gives the host backend's queue. What allocates there
// is memmgr.Default(q, kind), or a resource of the caller's own.
//
// release gives back what was made for the call; it is never nil, and memory that was
// allocated on the queue stays valid after it. Errors: ErrInterface.
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
				_ = d.Close() // it cannot fail, nor can a queue's
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
