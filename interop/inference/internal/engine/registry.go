package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// registry is the models that were loaded together, with their runner.
type registry struct {
	runner   executor.Runner
	requests sync.WaitGroup
	models   []*Model
	byName   map[string]*Model
}

// SetModels replaces all models, whose functions runner runs. A model continues the statistics of the model of the
// same name. If one is not "", it is the only one that clients load: the others stay
// unloaded if they were. Requests in flight finish on the models that they began with, and
// ended waits for them: then the old runner can be closed. Errors: invalid definitions, and then
// nothing has changed; ended returns the error of its context.
func (e *Engine) SetModels(runner executor.Runner, definitions []Definition, one string) (ended func(context.Context) error, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old, next := e.current.Load(), &registry{runner: runner, byName: map[string]*Model{}}
	for _, d := range definitions {
		m, err := newModel(e, next, d)
		if err != nil {
			return nil, fmt.Errorf("engine: model %s: %w", d.Meta.Name, err)
		}
		if before := old.byName[d.Meta.Name]; before != nil {
			m.stats = before.stats
			m.unloaded.Store(before.unloaded.Load() && one != "" && one != d.Meta.Name)
		}
		next.models = append(next.models, m)
		next.byName[d.Meta.Name] = m
	}
	e.current.Store(next)
	return func(ctx context.Context) error {
		if err := waitFor(ctx, &old.requests); err != nil {
			return fmt.Errorf("engine: requests to replaced models have not ended: %w", err)
		}
		return nil
	}, nil
}

// Index describes the models, or those that are ready, in the words of the protocol's repository extension.
func (e *Engine) Index(ready bool) []oip.Entry {
	list := []oip.Entry{} // not nil: an empty list in JSON
	for _, m := range e.Models() {
		entry := oip.Entry{Name: m.def.Meta.Name, Version: m.def.Meta.Versions[0], State: "READY"}
		if err := m.Ready(); err != nil {
			if ready {
				continue
			}
			entry.State, entry.Reason = "UNAVAILABLE", oip.As(err).Message
		}
		list = append(list, entry)
	}
	return list
}

var errNoControl = oip.Errorf(oip.Unsupported, "clients cannot load or unload models: start the server with -model-control")

// Load loads a model for a client by Options.Load. parameters are the names of the request's parameters.
// Errors: Unsupported without it, and for parameters that give the model another configuration or
// other files; those of Options.Load.
func (e *Engine) Load(ctx context.Context, model string, parameters []string) error {
	for _, name := range parameters {
		if name == "config" || strings.HasPrefix(name, "file:") {
			return oip.Errorf(oip.Unsupported, "the parameter %s of load is not supported: a model is loaded from its file", oip.Quote(name))
		}
	}
	if e.o.Load == nil {
		return errNoControl
	}
	return e.o.Load(ctx, model)
}

// Unload makes a model unavailable for a client. Requests in flight finish. Errors: NotFound, Unsupported without
// Options.Load.
func (e *Engine) Unload(model string) error {
	if e.o.Load == nil {
		return errNoControl
	}
	e.mu.Lock() // not while SetModels looks which models are unloaded
	defer e.mu.Unlock()
	m, err := e.Model(model, "")
	if err == nil {
		m.unloaded.Store(true)
	}
	return err
}
