package engine

import (
	"context"
	"time"

	"github.com/usmbridge/usmbridge/memmgr/arena"
)

// Request is one request of a client. Its methods must not be called concurrently.
type Request struct {
	model  *Model
	began  time.Time
	parent context.Context
	base   context.Context // of parent, ended by Interrupt
	ctx    context.Context // of base, with the deadline
	cancel context.CancelFunc

	interrupt context.CancelFunc // of base
	stop      func() bool        // ends the wait for Interrupt

	inputs  []Input        // in the order of the model
	outputs []Output       // likewise
	tensors []*tensor      // of inputs and outputs
	wanted  []*Output      // in the requested order
	shapes  [][]int64      // of the outputs, from the function of the model
	arena   *arena.Arena   // of allocations of the model; nil if they are not charged to the request
	info    map[string]any // id and parameters, for the model
	counted bool           // in the model's statistics
	ended   bool
}

func newRequest(ctx context.Context, m *Model, began time.Time) *Request {
	r := &Request{model: m, began: began, parent: ctx}
	r.base, r.interrupt = context.WithCancel(ctx)
	r.stop = context.AfterFunc(m.engine.interrupted, r.interrupt)
	r.ctx, r.cancel = context.WithDeadline(r.base, began.Add(m.engine.Options.Timeout))
	r.inputs = make([]Input, len(m.def.Meta.Inputs))
	r.outputs = make([]Output, len(m.def.Meta.Outputs))
	r.tensors = make([]*tensor, 0, len(r.inputs)+len(r.outputs))
	for i := range r.inputs {
		r.inputs[i].tensor = tensor{request: r, index: i, meta: &m.def.Meta.Inputs[i], dtype: m.types[i]}
		r.tensors = append(r.tensors, &r.inputs[i].tensor)
	}
	for i := range r.outputs {
		r.outputs[i].tensor = tensor{request: r, output: true, index: i, meta: &m.def.Meta.Outputs[i], dtype: m.types[len(r.inputs)+i]}
		r.tensors = append(r.tensors, &r.outputs[i].tensor)
	}
	return r
}

// Model returns the model of the request.
func (r *Request) Model() *Model { return r.model }

// Describe sets the ID and the parameters of the request, for a model whose Definition has Request.
func (r *Request) Describe(id string, parameters map[string]any) {
	r.info = map[string]any{"id": id, "parameters": parameters}
}

// SetTimeout sets the time of the request, counted from Begin. The timeout of the server still
// holds. It must be called before Fill. 0 and negative times change nothing.
func (r *Request) SetTimeout(d time.Duration) {
	if end := r.began.Add(d); d > 0 && end.Before(r.Deadline()) {
		r.cancel()
		r.ctx, r.cancel = context.WithDeadline(r.base, end)
	}
}

// Deadline returns the deadline of the request.
func (r *Request) Deadline() time.Time {
	end, _ := r.ctx.Deadline()
	return end
}

// End releases all memory and regions of the request. Memory that codec.Leases or Python
// hold stays valid. It may be called at any point and more than once; nothing else of the request
// may be used afterwards.
func (r *Request) End() {
	if r.ended {
		return
	}
	r.ended = true
	r.count(false)
	for _, t := range r.tensors {
		t.release()
	}
	if r.arena != nil {
		if left := r.arena.End(); left.Blocks > 0 {
			r.model.stats.update(func(s *ModelStats) { s.Kept++ })
			r.model.engine.Options.Log.Debug("a model keeps memory of a request", "model", r.model.def.Meta.Name, "left", left)
		}
	}
	r.cancel()
	r.stop()
	r.interrupt()
	r.model.engine.discount(r.model)
}

// count adds the request to the statistics of its model, once.
func (r *Request) count(ok bool) {
	if r.counted {
		return
	}
	r.counted = true
	took := time.Since(r.began)
	r.model.stats.latency.Observe(took.Seconds())
	r.model.stats.update(func(s *ModelStats) {
		if ok {
			s.Success.add(took)
		} else {
			s.Fail.add(took)
		}
	})
}
