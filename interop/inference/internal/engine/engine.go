package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
)

// retryAfter is the time after which a client that was refused for lack of room may try again.
const retryAfter = time.Second

// Engine serves models. Its methods may be called from any goroutine.
type Engine struct {
	o       Options
	current atomic.Pointer[registry]
	calls   atomic.Int64 // between Enter and Leave
	health  health
	refused [oip.Kinds]atomic.Uint64

	mu       sync.Mutex // guards draining; held to admit a request and to replace the models
	draining bool
	requests sync.WaitGroup
	inFlight atomic.Int64 // as requests
}

// New returns an engine, which Close ends. It is not ready until SetModels.
func New(o Options) *Engine {
	o.complete()
	e := &Engine{o: o}
	e.current.Store(&registry{})
	return e
}

// Server returns the description of the server.
func (e *Engine) Server() oip.Server {
	return oip.Server{Name: e.o.Name, Version: e.o.Version,
		Extensions: []string{"binary_tensor_data", "model_repository", "statistics", "system_shared_memory"}}
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

// Regions returns the shared memory of clients.
func (e *Engine) Regions() *region.Registry { return e.o.Regions }

// Pools returns Options.Memory, Options.Calls and Options.Results.
func (e *Engine) Pools() []Pool { return []Pool{e.o.Memory, e.o.Calls, e.o.Results} }

// Log returns the log, for errors whose details clients must not see.
func (e *Engine) Log() *slog.Logger { return e.o.Log }

// Timeout returns the maximum time of a request.
func (e *Engine) Timeout() time.Duration { return e.o.Timeout }

// Runner returns the runner of the models; nil before SetModels.
func (e *Engine) Runner() executor.Runner { return e.current.Load().runner }

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
	if e.calls.Add(1) > int64(e.o.MaxCalls) {
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

// busy returns the error for a client that may try again later.
func busy(message string, err error) *oip.Error {
	return &oip.Error{Kind: oip.Busy, Message: message, RetryAfter: retryAfter, Err: err}
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
	m.registry.requests.Add(1)
	return m, nil
}

// discount ends the count of a request by admit.
func (e *Engine) discount(m *Model) {
	m.registry.requests.Done()
	e.inFlight.Add(-1)
	e.requests.Done()
}

// Drain refuses new requests. Requests in flight continue. Further calls do nothing.
func (e *Engine) Drain() {
	e.Retire()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.draining = true
}

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
