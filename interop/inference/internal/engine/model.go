package engine

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Model is a model. Its methods may be called from any goroutine.
type Model struct {
	engine   *Engine
	registry *registry
	def      Definition
	inputs   map[string]int
	outputs  map[string]int
	types    []usmarray.DataType // of the inputs, then of the outputs
	from     []int               // for each output, the input with its free extents
	stats    *modelStats
	unloaded atomic.Bool
}

func newModel(e *Engine, r *registry, d Definition) (*Model, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	if len(d.Meta.Versions) == 0 {
		d.Meta.Versions = []string{"1"}
	}
	m := &Model{engine: e, registry: r, def: d, stats: new(modelStats), inputs: map[string]int{}, outputs: map[string]int{}}
	if d.Broken != "" {
		m.def.Meta.Inputs, m.def.Meta.Outputs = []oip.Tensor{}, []oip.Tensor{}
		return m, nil
	}
	for i, t := range d.Meta.Inputs {
		m.inputs[t.Name] = i
	}
	for i, t := range d.Meta.Outputs {
		m.outputs[t.Name] = i
		from, err := extentsFrom(d.Meta.Inputs, &t)
		if err != nil {
			from = -1 // not used: Shapes or the returned arrays have the shapes
		}
		m.from = append(m.from, from)
	}
	for _, tensors := range [][]oip.Tensor{d.Meta.Inputs, d.Meta.Outputs} {
		for _, t := range tensors {
			dt, err := t.Datatype.DType()
			if err != nil {
				return nil, err
			}
			m.types = append(m.types, dt)
		}
	}
	return m, nil
}

// Meta returns the description of the model. It must not be changed.
func (m *Model) Meta() oip.Model { return m.def.Meta }

// Bound reports whether the model writes into the memory of its outputs.
func (m *Model) Bound() bool { return m.def.Bound }

// Ready returns nil if the model can be called. Errors: NotReady.
func (m *Model) Ready() error {
	if err := m.broken(); err != nil {
		return err
	}
	return m.engine.Ready()
}

// broken returns the error of a model that cannot be called, and nil for other models.
func (m *Model) broken() error {
	reason := m.def.Broken
	if m.unloaded.Load() {
		reason = "it was unloaded"
	}
	if reason == "" {
		return nil
	}
	return &oip.Error{Kind: oip.NotReady, RetryAfter: retryAfter,
		Message: fmt.Sprintf("model %s is not ready: %s", m.def.Meta.Name, clip(reason))}
}

// shapeOf applies the rule for the shape of an output.
func (m *Model) shapeOf(output int, inputs []Input) []int64 {
	meta := &m.def.Meta.Outputs[output]
	shape := append(make([]int64, 0, len(meta.Shape)), meta.Shape...)
	from := m.from[output]
	if from < 0 {
		return shape
	}
	given, next := inputs[from].shape, 0
	for i, extent := range shape {
		if extent >= 0 {
			continue
		}
		for m.def.Meta.Inputs[from].Shape[next] >= 0 {
			next++
		}
		shape[i] = given[next]
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
