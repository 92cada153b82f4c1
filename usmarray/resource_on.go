package usmarray

import (
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// ResourceOn is the process's shared resource (memmgr.Default) for memory of a
// kind where a syclobj says, in any of its forms: the context and device of
// a queue; a context and its first device; the default context of a filter
// string's device. Sub-devices, contexts over several devices, in-order and
// profiling queues all do. The filter string "host" is the host backend, which
// takes every kind for host memory. Nothing of obj needs to live on.
func ResourceOn(rt *syclobj.Runtime, obj SyclObj, kind syclobj.USMKind) (memmgr.Resource, error) {
	const op = "ResourceOn"
	if rt == nil {
		return nil, nilRuntime(op)
	}
	at, err := obj.resolve(op, rt)
	if err != nil {
		return nil, err
	}
	q, own, err := at.queueFor(rt)
	if err != nil {
		return nil, &OpError{Op: op, Key: "syclobj", Err: err}
	}
	r, err := memmgr.Default(q, kind)
	if own {
		_ = q.Close() // memory needs its context only; closing cannot fail
	}
	if err != nil {
		return nil, wrapErr(op, nil, err)
	}
	return r, nil
}

// queueFor is a queue on what was resolved; own tells the caller to close it.
func (r *resolved) queueFor(rt *syclobj.Runtime) (q *syclobj.Queue, own bool, err error) {
	if r.queue != nil {
		return r.queue, false, nil
	}
	d := r.device
	if d == nil {
		devices, err := r.context.Devices()
		if err != nil {
			return nil, false, err
		}
		d = devices[0] // a context has at least one
	}
	if r.context.IsDefault() && !d.IsSubDevice() {
		q, err = d.DefaultQueue()
		return q, false, err
	}
	q, err = rt.NewQueue(r.context, d, syclobj.InOrder)
	return q, true, err
}
