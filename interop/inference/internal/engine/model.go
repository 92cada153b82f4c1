package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Definition is a model and how it is called.
type Definition struct {
	Meta oip.Model
	// Function gets the inputs in the order of Meta, as arrays, and after them, if Bound, the
	// outputs, as arrays to write. Otherwise it returns a list of the outputs, as arrays.
	Function string // "module:name"
	Bound    bool
	// Shapes, if set, gets the shapes of the inputs, as lists of integers, and returns a list of the
	// shapes of the outputs, as JSON. Without it, the n-th free extent of an output is the n-th free extent
	// of the first input with as many of them.
	Shapes string
	// Request says that the last argument of Function is a map with the "id" of the request, a string, and its
	// "parameters", a map.
	Request bool
	// Serial makes calls of this model run one at a time.
	Serial bool
	// WritesAll promises that a Bound model writes every element of its outputs. Without it their
	// memory is cleared before the call.
	WritesAll bool
	// Broken is the reason why the model cannot be called, for clients; "" if it can. Of a broken model only
	// the name is used. Detail is the same for the log: it may be a traceback.
	Broken, Detail string
	// Load is the number of the load, for the owner of the models.
	Load int
}

// Model is a model. Its methods may be called from any goroutine.
type Model struct {
	engine   *Engine
	requests sync.WaitGroup // between Begin and End
	def      Definition
	inputs   map[string]int
	outputs  map[string]int
	types    []usmarray.DataType // of the inputs, then of the outputs
	stats    *modelStats
	fault    atomic.Pointer[string] // why a later load failed; nil if none did
}

func newModel(e *Engine, d Definition) (*Model, error) {
	d.Meta.Versions = []string{"1"}
	m := &Model{engine: e, def: d, stats: newStats(d.Meta.Name), inputs: map[string]int{}, outputs: map[string]int{}}
	if d.Broken != "" {
		m.def.Meta.Inputs, m.def.Meta.Outputs = []oip.Tensor{}, []oip.Tensor{}
		return m, nil
	}
	for i, t := range d.Meta.Inputs {
		m.inputs[t.Name] = i
	}
	for i, t := range d.Meta.Outputs {
		m.outputs[t.Name] = i
		if _, err := extentsFrom(d.Meta.Inputs, &t); err != nil && d.Bound && d.Shapes == "" {
			return nil, err
		}
	}
	for _, t := range slices.Concat(d.Meta.Inputs, d.Meta.Outputs) {
		smallest := slices.Clone(t.Shape)
		for i, extent := range smallest {
			if extent == -1 {
				smallest[i] = 0
			}
		}
		if _, err := oip.Bytes(t.Datatype, smallest); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		dt, err := t.Datatype.DType()
		if err != nil {
			return nil, err
		}
		m.types = append(m.types, dt)
	}
	return m, nil
}

// Check returns an error for an invalid definition.
func (d *Definition) Check() error {
	_, err := newModel(nil, *d)
	return err
}

// free returns the number of free extents of a shape.
func free(shape []int64) (n int) {
	for _, extent := range shape {
		if extent < 0 {
			n++
		}
	}
	return n
}

// extentsFrom returns the index of the input with as many free extents as an output has. It is an error if an output
// with free extents has none.
func extentsFrom(inputs []oip.Tensor, out *oip.Tensor) (int, error) {
	n := free(out.Shape)
	i := slices.IndexFunc(inputs, func(in oip.Tensor) bool { return free(in.Shape) == n })
	if i < 0 && n > 0 {
		return 0, fmt.Errorf("output %s has %d free extents and no input has as many; define output_shapes", out.Name, n)
	}
	return i, nil
}

// Meta returns the description of the model. It must not be changed.
func (m *Model) Meta() oip.Model { return m.def.Meta }

// Ready returns nil if the model can be called, also while other models are loaded for the first time. Errors: NotReady.
func (m *Model) Ready() error {
	if err := m.broken(); err != nil {
		return err
	}
	return m.engine.serves()
}

// broken returns the error of a model that cannot be called, and nil for other models.
func (m *Model) broken() error {
	if m.def.Broken == "" {
		return nil
	}
	return notReady(fmt.Sprintf("model %s is not ready: %s", m.def.Meta.Name, clip(m.def.Broken)), nil)
}

// Definition returns the definition of the model.
func (m *Model) Definition() Definition { return m.def }

// SetFault records why a later load of the model failed, for the index.
func (m *Model) SetFault(reason string) { m.fault.Store(&reason) }

// Wait waits until the requests to a model that was replaced or removed have ended. Errors: that of the context.
func (m *Model) Wait(ctx context.Context) error { return waitFor(ctx, &m.requests) }

// shapeOf applies the rule for the shape of an output.
func (m *Model) shapeOf(output int, inputs []Input) []int64 {
	out, next := &m.def.Meta.Outputs[output], 0
	input, _ := extentsFrom(m.def.Meta.Inputs, out) // newModel has checked it
	shape := slices.Clone(out.Shape)
	for i, extent := range shape {
		if extent >= 0 {
			continue
		}
		from := &inputs[input]
		for from.meta.Shape[next] >= 0 {
			next++
		}
		shape[i] = from.shape[next]
		next++
	}
	return shape
}

// clip shortens a text of a model's for a client: the first line, within reason.
func clip(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
