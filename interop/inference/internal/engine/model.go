package engine

import (
	"fmt"
	"slices"
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
	stats    *modelStats
	unloaded atomic.Bool
}

func newModel(e *Engine, r *registry, d Definition) (*Model, error) {
	d.Meta.Versions = []string{"1"}
	m := &Model{engine: e, registry: r, def: d, stats: newStats(d.Meta.Name), inputs: map[string]int{}, outputs: map[string]int{}}
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

// Meta returns the description of the model. It must not be changed.
func (m *Model) Meta() oip.Model { return m.def.Meta }

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
	return notReady(fmt.Sprintf("model %s is not ready: %s", m.def.Meta.Name, clip(reason)), nil)
}

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
