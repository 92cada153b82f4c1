package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
)

// Pool is a pool with its limit in bytes, 0 for no limit.
type Pool struct {
	*memmgr.Pool
	Limit uint64
}

// Options configure an Engine. Zero values are defaults.
type Options struct {
	Name, Version string // of the server, in its metadata
	// Memory is for tensors; the host must be able to read it. The caller closes it after Close. A request has at
	// most seven eighths of its limit.
	Memory Pool
	// ForModels chooses the memory of arrays that models allocate in a call, by queue and kind. nil: the runner chooses.
	ForModels arena.Chooser
	// Calls is what ForModels chooses for most allocations, and Results is for copies of returned outputs. A call
	// holds the first while it waits for the second, and waiting requests can fill Memory: one pool for two of them
	// would let requests wait for each other. nil: Memory.
	Calls, Results Pool
	// Regions is the shared memory of clients. The caller closes it after Close.
	Regions *region.Registry
	// Runner runs the functions of the models. The caller closes it after Close.
	Runner executor.Runner
	// Load loads a model for a client from its file again, and no other. Unload makes one unavailable. Errors: NotFound,
	// NotReady for a model that cannot be loaded. nil: clients can neither load nor unload models.
	Load, Unload func(ctx context.Context, model string) error
	// Apart says that models run in other processes, which can see Memory alone: inputs in regions
	// are copied into Memory before the call, and outputs back after it.
	Apart bool

	MaxCalls int           // calls of all transports at a time, among them idle streams; 1024
	Timeout  time.Duration // of a request, which may have a shorter one; 30 s
	Patience time.Duration // time that the runner may be stuck until Live returns an error; a minute
	Log      *slog.Logger  // for details that clients must not see; slog.Default()
}

// registry is the models at one time. It does not change.
type registry struct {
	models []*Model // in the order of their names
	byName map[string]*Model
}

// Engine serves models. Its methods may be called from any goroutine.
type Engine struct {
	Options Options // which do not change
	current atomic.Pointer[registry]
	calls   atomic.Int64 // between Enter and Leave
	health  health
	refused [oip.Kinds]atomic.Uint64

	interrupted context.Context // ends with Interrupt
	interrupt   context.CancelFunc

	mu       sync.Mutex // guards draining; held to admit a request and to replace the models
	draining bool
	requests sync.WaitGroup
	inFlight atomic.Int64 // as requests
}

// New returns an engine without models, which Close ends. It is not ready until Loaded.
func New(o Options) *Engine {
	o.Name = cmp.Or(o.Name, "usmbridge")
	o.MaxCalls = cmp.Or(o.MaxCalls, 1024)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Patience = cmp.Or(o.Patience, time.Minute)
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Calls, o.Results = cmp.Or(o.Calls, o.Memory), cmp.Or(o.Results, o.Memory)
	e := &Engine{Options: o}
	e.interrupted, e.interrupt = context.WithCancel(context.Background())
	e.current.Store(&registry{})
	return e
}

// Server returns the description of the server.
func (e *Engine) Server() oip.Server {
	return oip.Server{Name: e.Options.Name, Version: e.Options.Version,
		Extensions: []string{"binary_tensor_data", "model_repository", "statistics", "system_shared_memory"}}
}

// Models returns the models, in the order of their names. The list does not change.
func (e *Engine) Models() []*Model { return e.current.Load().models }

// Model returns a model; version is "" or "1". Errors: NotFound.
func (e *Engine) Model(name, version string) (*Model, error) {
	m := e.current.Load().byName[name]
	if m == nil {
		return nil, oip.Errorf(oip.NotFound, "no model is called %s", oip.Quote(name))
	}
	if version != "" && version != m.def.Meta.Versions[0] {
		return nil, oip.Errorf(oip.NotFound, "model %s has no version %s: its version is %s", name, oip.Quote(version), m.def.Meta.Versions[0])
	}
	return m, nil
}

// Stats are the counts of an engine.
type Stats struct {
	Calls    int               // between Enter and Leave
	Requests int               // between Begin and End
	Refused  [oip.Kinds]uint64 // requests that were refused or failed, by oip.Kind
	Draining bool
}

// Stats returns the current counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	s := Stats{Draining: e.draining, Requests: int(e.inFlight.Load()), Calls: int(e.calls.Load())}
	e.mu.Unlock()
	for kind := range e.refused {
		s.Refused[kind] = e.refused[kind].Load()
	}
	return s
}

// Refused counts a request that ended with an error. Transports call it once for each error that
// they send, because they also refuse requests that never reach Begin.
func (e *Engine) Refused(kind oip.Kind) { e.refused[kind].Add(1) }

// Enter takes a place for a call of a transport; Leave ends it. A call has at most one request at a time.
// Errors: Busy.
func (e *Engine) Enter() error {
	if e.calls.Add(1) > int64(e.Options.MaxCalls) {
		e.calls.Add(-1)
		return busy("too many requests are being served", nil)
	}
	return nil
}

// Leave gives the place of a call back.
func (e *Engine) Leave() { e.calls.Add(-1) }

// Begin admits a request, or refuses it immediately; End must follow. When ctx ends, all waiting ends, and a
// running call is interrupted. Errors: NotReady, NotFound.
func (e *Engine) Begin(ctx context.Context, model, version string) (*Request, error) {
	began := time.Now()
	if !e.health.warm.Load() {
		if err := e.healthy(); err != nil {
			return nil, err
		}
	}
	m, err := e.admit(model, version)
	if err != nil {
		return nil, err
	}
	return newRequest(ctx, m, began), nil
}

// admit finds the model of a request and counts the request.
func (e *Engine) admit(name, version string) (*Model, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.Model(name, version)
	switch {
	case err != nil:
		return nil, err
	case e.draining:
		return nil, oip.ErrDraining
	}
	if err := m.broken(); err != nil {
		return nil, err
	}
	e.requests.Add(1)
	e.inFlight.Add(1)
	m.requests.Add(1)
	return m, nil
}

// discount ends the count of a request by admit.
func (e *Engine) discount(m *Model) {
	m.requests.Done()
	e.inFlight.Add(-1)
	e.requests.Done()
}

// SetModel adds a model, or replaces that of the same name, whose statistics it continues, and returns the replaced one;
// nil if there was none. Requests in flight finish on the model that they began with. Errors: an invalid definition, and
// then nothing has changed.
func (e *Engine) SetModel(d Definition) (replaced *Model, err error) {
	m, err := newModel(e, d)
	if err != nil {
		return nil, fmt.Errorf("engine: model %s: %w", d.Meta.Name, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if replaced = e.current.Load().byName[d.Meta.Name]; replaced != nil {
		m.stats = replaced.stats
	}
	e.replace(d.Meta.Name, m)
	return replaced, nil
}

// RemoveModel removes a model and returns it; nil if there is none.
func (e *Engine) RemoveModel(name string) *Model {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.current.Load().byName[name]
	e.replace(name, nil)
	return m
}

// replace sets the model of a name, or removes it. mu is held.
func (e *Engine) replace(name string, m *Model) {
	next := &registry{byName: maps.Clone(e.current.Load().byName)}
	if next.byName == nil {
		next.byName = map[string]*Model{}
	}
	if next.byName[name] = m; m == nil {
		delete(next.byName, name)
	}
	for _, name := range slices.Sorted(maps.Keys(next.byName)) {
		next.models = append(next.models, next.byName[name])
	}
	e.current.Store(next)
}

// Loaded makes the engine ready: the models of the start have been loaded, or have failed.
func (e *Engine) Loaded() { e.health.loaded.Store(true) }

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
		} else if fault := m.fault.Load(); fault != nil {
			entry.Reason = "the last load failed: " + clip(*fault)
		}
		list = append(list, entry)
	}
	return list
}

var errNoControl = oip.Errorf(oip.Unsupported, "clients cannot load or unload models: start the server with -model-control")

// Load loads a model for a client by Options.Load. parameters are the names of the request's parameters.
// Errors: Unsupported without it, and for parameters that give the model another configuration or
// other files; NotFound for no name; those of Options.Load.
func (e *Engine) Load(ctx context.Context, model string, parameters []string) error {
	for _, name := range parameters {
		if name == "config" || strings.HasPrefix(name, "file:") {
			return oip.Errorf(oip.Unsupported, "the parameter %s of load is not supported: a model is loaded from its file", oip.Quote(name))
		}
	}
	switch {
	case e.Options.Load == nil:
		return errNoControl
	case model == "": // gRPC allows it
		return oip.Errorf(oip.NotFound, "no model is called %s", oip.Quote(model))
	}
	return e.Options.Load(ctx, model)
}

// Unload makes a model unavailable for a client. Requests in flight finish. Errors: NotFound, Unsupported without
// Options.Unload.
func (e *Engine) Unload(ctx context.Context, model string) error {
	if e.Options.Unload == nil {
		return errNoControl
	}
	return e.Options.Unload(ctx, model)
}

// Drain refuses new requests. Requests in flight continue. Further calls do nothing.
func (e *Engine) Drain() {
	e.Retire()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.draining = true
}

// Interrupt ends the waits and the calls of all requests, which fail with NotReady. Further calls do nothing.
func (e *Engine) Interrupt() { e.interrupt() }

// waitFor waits until a group is done, or ctx is.
func waitFor(ctx context.Context, g *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close drains and waits until every request has ended, or ctx has. It closes neither the runner nor
// the memory. Errors: that of the context, with the number of requests in flight.
func (e *Engine) Close(ctx context.Context) error {
	e.Drain()
	if err := waitFor(ctx, &e.requests); err != nil {
		return fmt.Errorf("engine: %d requests have not ended: %w", e.Stats().Requests, err)
	}
	return nil
}
