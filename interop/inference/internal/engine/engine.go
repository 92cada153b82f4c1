package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/fair"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
)

// retryAfter is the time after which a client that was refused for lack of room may try again.
const retryAfter = time.Second

// activeTime is how long a tenant counts as active after its last request.
const activeTime = time.Second

// Engine serves models. Its methods may be called from any goroutine.
type Engine struct {
	o           Options
	current     atomic.Pointer[registry]
	slots, lane *fair.Limiter
	accounts    accounts

	progress progress
	retired  atomic.Bool
	warm     atomic.Bool  // the runner has been ready
	badFrom  atomic.Int64 // since when it is not, in nanoseconds; 0 while it is
	refused  [oip.Kinds]atomic.Uint64

	mu       sync.Mutex
	draining bool
	inFlight int           // requests between Begin and End
	empty    chan struct{} // closed when draining and none is in flight
}

// New returns an engine, which Close ends. Errors: invalid options.
func New(o Options) (*Engine, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	e := &Engine{o: o, empty: make(chan struct{})}
	var err error
	bounds := fair.Config{Requests: o.Requests, PerTenant: o.PerTenant, Calls: o.Turns, Shared: min(o.Shared, o.Turns), Active: activeTime}
	if e.slots, err = fair.New(bounds); err != nil {
		return nil, err
	}
	bounds.Calls, bounds.Shared = 2, 1
	if e.lane, err = fair.New(bounds); err != nil {
		return nil, err
	}
	r, err := e.newRegistry(&load{runner: o.Runner}, o.Models, nil)
	if err != nil {
		return nil, err
	}
	e.current.Store(r)
	e.accounts.init(&e.o)
	return e, nil
}

// Server returns the description of the server.
func (e *Engine) Server() oip.Server {
	s := oip.Server{Name: e.o.Name, Version: e.o.Version,
		Extensions: []string{"binary_tensor_data", "model_repository", "model_configuration", "statistics"}}
	if e.o.Regions != nil {
		s.Extensions = append(s.Extensions, "system_shared_memory")
	}
	return s
}

// Ready returns nil if requests can be expected to be served. Errors: NotReady while the runner
// warms up, is stuck or makes no progress, and after Retire or Drain.
func (e *Engine) Ready() error {
	if e.retired.Load() || e.isDraining() {
		return errDraining
	}
	return e.healthy()
}

// healthy returns nil if the runner is warm and makes progress.
func (e *Engine) healthy() error {
	err := e.Runner().Health()
	if err == nil {
		err = e.checkProgress()
	}
	if err == nil && !e.anyModel() {
		return &oip.Error{Kind: oip.NotReady, Message: "no model is ready", RetryAfter: retryAfter}
	}
	if err == nil {
		e.warm.Store(true)
		e.badFrom.Store(0)
		return nil
	}
	message := "the server is not ready"
	if errors.Is(err, executor.ErrWarming) {
		message = "the server is warming up"
	} else {
		e.badFrom.CompareAndSwap(0, time.Now().UnixNano())
	}
	return &oip.Error{Kind: oip.NotReady, Message: message, RetryAfter: retryAfter, Err: err}
}

var errDraining = &oip.Error{Kind: oip.NotReady, Message: "the server is shutting down", RetryAfter: retryAfter}

// anyModel reports whether a model can be called.
func (e *Engine) anyModel() bool {
	return slices.ContainsFunc(e.Models(), func(m *Model) bool { return m.def.Broken == "" })
}

// Live returns nil until the runner has been stuck, or without progress, for Options.Patience, as
// seen by Ready or Live. Errors: NotReady.
func (e *Engine) Live() error {
	err := e.Ready()
	if from := e.badFrom.Load(); err != nil && from != 0 && time.Since(time.Unix(0, from)) > e.o.Patience {
		return err
	}
	return nil
}

func (e *Engine) isDraining() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.draining
}

// Models returns the models, in the order of their definitions. The list does not change.
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

// Regions returns the shared memory of clients; nil if it is not served.
func (e *Engine) Regions() *region.Registry { return e.o.Regions }

// Limit returns the bytes that tensors may take, 0 for no limit.
func (e *Engine) Limit() uint64 { return e.o.Limit }

// Timeout returns the maximum time of a request.
func (e *Engine) Timeout() time.Duration { return e.o.Timeout }

// Runner returns the runner of the models.
func (e *Engine) Runner() executor.Runner { return e.current.Load().load.runner }

// Stats are the counts of an engine.
type Stats struct {
	Requests    int               // between Begin and End
	Refused     [oip.Kinds]uint64 // requests that were refused or failed, by oip.Kind
	Slots, Lane fair.Stats
	Tenants     []TenantStats
	Draining    bool
}

// Stats returns the current counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	inFlight, draining := e.inFlight, e.draining
	e.mu.Unlock()
	s := Stats{Requests: inFlight, Slots: e.slots.Stats(), Lane: e.lane.Stats(), Tenants: e.accounts.list(), Draining: draining}
	for kind := range e.refused {
		s.Refused[kind] = e.refused[kind].Load()
	}
	return s
}

// Refused counts a request that ended with an error. Transports call it once for each error that
// they send, because they also refuse requests that never reach Begin.
func (e *Engine) Refused(kind oip.Kind) {
	if int(kind) >= len(e.refused) {
		kind = oip.Internal
	}
	e.refused[kind].Add(1)
}

// Begin admits a request of a tenant, or refuses it immediately; End must follow. When ctx ends, all
// waiting ends, and a running call is interrupted. Errors: NotReady, NotFound, and Busy for too many
// requests.
func (e *Engine) Begin(ctx context.Context, tenant, model, version string) (*Request, error) {
	began := time.Now()
	if !e.warm.Load() {
		if err := e.healthy(); err != nil {
			return nil, err
		}
	}
	m, err := e.admit(model, version)
	if err != nil {
		return nil, err
	}
	account, err := e.accounts.enter(tenant)
	if err != nil {
		e.discount(m)
		return nil, err
	}
	ticket, err := m.queue.Enter(account.name)
	if err != nil {
		e.accounts.leave(account)
		e.discount(m)
		message := "too many requests are being served"
		if errors.Is(err, fair.ErrTenantFull) {
			message = "too many requests of this client are being served"
		}
		return nil, &oip.Error{Kind: oip.Busy, Message: message, RetryAfter: retryAfter, Err: err}
	}
	return newRequest(ctx, m, account, ticket, began), nil
}

// admit finds the model of a request and counts the request.
func (e *Engine) admit(name, version string) (*Model, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.Model(name, version)
	switch {
	case err != nil:
		return nil, err
	case m.def.Broken != "":
		return nil, m.broken()
	case e.draining:
		return nil, errDraining
	}
	e.inFlight++
	m.load.requests.Add(1)
	return m, nil
}

func (e *Engine) discount(m *Model) {
	m.load.requests.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight--
	if e.draining && e.inFlight == 0 {
		close(e.empty)
	}
}

// Retire makes Ready return an error. Requests are still served, so that load balancers can notice
// before Drain.
func (e *Engine) Retire() { e.retired.Store(true) }

// Drain refuses new requests. Requests in flight continue. Further calls do nothing.
func (e *Engine) Drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining {
		return
	}
	e.draining = true
	if e.inFlight == 0 {
		close(e.empty)
	}
}

// Close drains and waits until every request has ended, or ctx has. It closes neither the runner nor
// the memory. Errors: that of the context, with the number of requests in flight.
func (e *Engine) Close(ctx context.Context) error {
	e.Drain()
	select {
	case <-e.empty:
	case <-ctx.Done():
		return fmt.Errorf("engine: %d requests have not ended: %w", e.Stats().Requests, ctx.Err())
	}
	e.accounts.close()
	return nil
}

func (e *Engine) log() *slog.Logger { return e.o.Log }
