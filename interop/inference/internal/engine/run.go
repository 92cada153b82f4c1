package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Run calls the model, and returns the requested outputs in the requested order. It is called once. Errors:
// Invalid for missing inputs, for shared memory that was removed, and for a request that the model refuses;
// Busy, Deadline, Cancelled; Internal if the model failed.
func (r *Request) Run() ([]Result, error) {
	results, err := r.run()
	if err != nil {
		r.count(false)
		return nil, r.logged(err)
	}
	r.count(true)
	return results, nil
}

// logged returns the error for the client, and logs an error of the server once.
func (r *Request) logged(err error) *oip.Error {
	e := r.clientError(err)
	if e.Kind == oip.Internal && !e.Logged {
		e.Logged = true
		r.model.engine.Options.Log.Error("a request failed", "model", r.model.def.Meta.Name, "error", e)
	}
	return e
}

func (r *Request) run() ([]Result, error) {
	m := r.model
	if span := trace.SpanFromContext(r.parent); span.IsRecording() {
		span.SetAttributes(attribute.String("inference.model", m.def.Meta.Name))
	}
	for i := range r.inputs {
		if in := &r.inputs[i]; !in.filled && !in.inRegion() {
			return nil, oip.Errorf(oip.Invalid, "input %s of model %s is missing", in.meta.Name, m.def.Meta.Name)
		}
	}
	if len(r.wanted) == 0 {
		for i := range r.outputs {
			r.outputs[i].wanted = true
			r.wanted = append(r.wanted, &r.outputs[i])
		}
	}
	began := time.Now()
	if err := r.reserve(); err != nil {
		return nil, err
	}
	args, err := r.arguments()
	if err != nil {
		return nil, err
	}
	if m.def.Request {
		args = append(args, r.info)
	}
	ready := time.Now()
	called, err := r.call(args)
	var results []Result
	if err == nil {
		results, err = r.collect()
	}
	m.stats.update(func(s *ModelStats) {
		s.Executions++
		s.Last = called
		for i := range r.inputs {
			s.InputBytes += r.inputs[i].size
		}
		s.ComputeInput.add(ready.Sub(began))
		s.ComputeInfer.add(called.Sub(ready))
		if err == nil {
			s.ComputeOutput.add(time.Since(called))
		}
		for i := range results {
			s.OutputBytes += results[i].Size
		}
	})
	return results, err
}

// call calls the model and takes its outputs. It returns the end of the call. Memory that the model allocates
// meanwhile belongs to the request.
func (r *Request) call(args []any) (ended time.Time, err error) {
	e, ctx := r.model.engine, r.ctx
	if e.Options.ForModels != nil {
		r.arena = arena.New(arena.Options{Name: r.model.def.Meta.Name, Choose: e.Options.ForModels})
		ctx = arena.NewContext(ctx, r.arena)
	}
	answer, err := r.model.engine.Options.Runner.Call(ctx, r.model.def.Function, args...)
	e.health.note(ctx, err)
	ended = time.Now()
	if err == nil && !r.model.def.Bound {
		err = r.copyOutputs(answer)
	} else if answer != nil {
		drop(answer)
	}
	return ended, err
}

// arguments returns the arrays of the inputs and, if the model is Bound, of the outputs. The memory of
// outputs is cleared unless the model writes every element: it may contain bytes of another request.
func (r *Request) arguments() ([]any, error) {
	m := r.model
	args := make([]any, 0, len(r.tensors))
	for i := range r.inputs {
		in := &r.inputs[i]
		if in.region.there() {
			if err := copyPlace(&in.place, &in.region, in.size); err != nil {
				return nil, err
			}
		}
		a, err := in.array(usmarray.ReadOnly())
		if err != nil {
			return nil, err
		}
		args = append(args, a)
	}
	for i := 0; m.def.Bound && i < len(r.outputs); i++ {
		o := &r.outputs[i]
		if !o.place.inRegion() && !m.def.WritesAll {
			p, err := o.place.bytes(o.size)
			if err != nil {
				return nil, err
			}
			clear(p)
		}
		a, err := o.array()
		if err != nil {
			return nil, err
		}
		args = append(args, a)
	}
	return args, nil
}

// askShapes calls the function of the model that returns the shapes of its outputs. The request has
// no memory yet, so no other request waits for it.
func (r *Request) askShapes() ([][]int64, error) {
	m := r.model
	args := make([]any, len(r.inputs))
	for i := range r.inputs {
		list := make([]any, len(r.inputs[i].shape))
		for j, extent := range r.inputs[i].shape {
			list[j] = extent
		}
		args[i] = list
	}
	answer, err := m.engine.Options.Runner.Call(r.ctx, m.def.Shapes, args...)
	if err != nil {
		return nil, err
	}
	text, _ := answer.(string)
	var shapes [][]int64
	if err := json.Unmarshal([]byte(text), &shapes); err != nil || len(shapes) != len(r.outputs) {
		drop(answer)
		return nil, fmt.Errorf("invalid shapes of %d outputs: %.100q", len(r.outputs), text)
	}
	for i, shape := range shapes {
		if meta := r.outputs[i].meta; !meta.Fits(shape) || slices.ContainsFunc(shape, func(n int64) bool { return n < 0 }) {
			return nil, fmt.Errorf("output %s would have shape %v and is declared as %v", meta.Name, shape, meta.Shape)
		}
	}
	return shapes, nil
}

// copyOutputs copies the returned outputs that the client wants: their memory must count against the limit until a slow
// client has fetched them, and the model may write again to an array that it keeps.
func (r *Request) copyOutputs(answer any) error {
	defer drop(answer)
	list, ok := answer.([]any)
	if !ok || len(list) != len(r.outputs) {
		return fmt.Errorf("invalid result (got %T, want a list of %d arrays)", answer, len(r.outputs))
	}
	for i := range r.inputs { // others may wait for their memory
		if in := &r.inputs[i]; !in.place.inRegion() {
			in.place.release()
		}
	}
	var b batch
	arrays := make([]*usmarray.Array, len(r.wanted))
	for i, o := range r.wanted {
		a, ok := list[o.index].(*usmarray.Array)
		if !ok {
			return fmt.Errorf("output %s: invalid value (got %T, want an array)", o.meta.Name, list[o.index])
		}
		arrays[i] = a
		if o.region.there() { // the copy is made here, and not by the model: it can go to the client's memory
			o.place, o.region = o.region, place{}
		}
		shape := make([]int64, a.NDim())
		for axis, extent := range a.Shape() {
			shape[axis] = int64(extent)
		}
		if a.DataType() != o.dtype || !o.meta.Fits(shape) {
			return fmt.Errorf("output %s is %v of %v and is declared as %v of %v", o.meta.Name, a.DataType(), shape, o.dtype, o.meta.Shape)
		}
		if err := o.setShape(shape); err != nil {
			return err
		}
		if !o.place.inRegion() {
			if err := b.add(&o.place, o.size); err != nil {
				return err
			}
		}
	}
	if err := b.allocate(r, r.model.engine.Options.Results); err != nil {
		return err
	}
	for i, o := range r.wanted {
		to, err := o.array()
		if err == nil {
			err = to.CopyFrom(arrays[i])
		}
		if err == nil {
			err = to.Wait()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// collect copies outputs to their regions and returns the results. It is an error if shared memory of
// the client was removed while it was used.
func (r *Request) collect() ([]Result, error) {
	for _, o := range r.wanted {
		if o.region.there() {
			if err := copyPlace(&o.region, &o.place, o.size); err != nil {
				return nil, err
			}
		}
	}
	for _, t := range r.tensors {
		if err := t.lost(); err != nil {
			return nil, err
		}
	}
	results := make([]Result, len(r.wanted))
	for i, o := range r.wanted {
		results[i] = Result{Name: o.meta.Name, Datatype: o.meta.Datatype, Shape: o.shape, Size: o.size, InRegion: o.inRegion(), Buffer: o.place.buffer}
		if !o.inRegion() {
			var err error
			if results[i].Bytes, err = o.place.bytes(o.size); err != nil {
				return nil, err
			}
		}
	}
	return results, nil
}

// drop releases the arrays in an answer of a function of bootstrap.py, which is an array or a list of arrays.
func drop(v any) {
	switch v := v.(type) {
	case *usmarray.Array:
		v.Release()
	case []any:
		for _, x := range v {
			drop(x)
		}
	}
}
