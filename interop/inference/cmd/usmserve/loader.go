package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/backend"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// loader loads the models of an engine, one by one. Each name has a turn, so that loads of one model follow each other
// and a load that hangs delays no other model.
type loader struct {
	directory string // "" for the built-in models
	backend   *backend.Backend
	engine    *engine.Engine
	log       *slog.Logger
	timeout   time.Duration   // of the wait for requests of replaced models
	ctx       context.Context // ends when the server drains: loads are interrupted

	mu    sync.Mutex
	turns map[string]chan struct{} // a token while a model is loaded or removed
	work  sync.WaitGroup           // loads of clients, and models that were replaced and have not ended
}

// errUnloaded is the reason of a model that a client has unloaded.
const errUnloaded = "it was unloaded"

// follow loads all models, and again after each signal. A signal during a load ends it. The outcome of the first load
// goes to first: an error if the directory cannot be read.
func (l *loader) follow(reload <-chan os.Signal, first chan<- error) {
	for start := true; l.ctx.Err() == nil; {
		ctx, cancel := context.WithCancelCause(l.ctx)
		over := make(chan error, 1)
		go func() { over <- l.loadAll(ctx) }()
		select {
		case err := <-over:
			cancel(nil)
			if start {
				first <- err
			} else if err != nil && l.ctx.Err() == nil {
				l.log.Error("cannot reload the models; the current ones are served", "error", err)
			}
			start = false
			select {
			case <-reload:
			case <-l.ctx.Done():
			}
		case <-reload:
			cancel(errors.New("the models are loaded again"))
			if err := <-over; err != nil { // it ends with its context
				l.log.Debug("the reload has ended for the next one", "error", err)
			}
		}
	}
}

// read reads the sources of the models.
func (l *loader) read() ([]models.Source, error) {
	if l.directory == "" {
		return models.Builtin(), nil
	}
	return models.Read(l.directory)
}

// loadAll removes the models that have no file any more and loads all others, one after the other, so that at most one
// is in memory twice. Errors: the directory cannot be read, or ctx ended; or no process can run models.
func (l *loader) loadAll(ctx context.Context) error {
	began := time.Now()
	sources, err := l.read()
	if err == nil {
		err = l.backend.Runner.Ready(ctx)
	}
	if err != nil {
		return err
	}
	for _, m := range l.engine.Models() {
		if name := m.Meta().Name; !slices.ContainsFunc(sources, func(s models.Source) bool { return s.Name == name }) {
			leave, err := l.turn(ctx, name)
			if err != nil {
				return err
			}
			l.forget(l.engine.RemoveModel(name))
			leave()
		}
	}
	for _, s := range sources {
		if _, err := l.engine.Model(s.Name, ""); err != nil {
			_, _ = l.engine.SetModel(models.Broken(s, "it is being loaded", "")) // a valid definition
		}
	}
	fresh := true
	for _, s := range sources {
		leave, err := l.turn(ctx, s.Name)
		if err != nil {
			return err
		}
		replaced, err := l.load(ctx, s, fresh)
		fresh = fresh && s.Problem != "" // all models share the helper modules that the first one imports
		l.forget(replaced)
		leave()
		if ctx.Err() != nil {
			return err
		}
	}
	l.log.Info("models are loaded", "models", len(sources), "ready", len(l.engine.Index(true)), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// loadOne loads a model from its file for a client. The load continues if the client leaves. Errors, for clients:
// NotFound, NotReady for a model that cannot be loaded.
func (l *loader) loadOne(ctx context.Context, name string) error {
	sources, err := l.read()
	if err != nil {
		l.log.Error("cannot load a model", "model", name, "error", err)
		return oip.Errorf(oip.NotReady, "the model could not be loaded; the log of the server has the reason")
	}
	i := slices.IndexFunc(sources, func(s models.Source) bool { return s.Name == name })
	if i < 0 {
		return oip.Errorf(oip.NotFound, "no model is called %s", oip.Quote(name))
	}
	leave, err := l.turn(ctx, name)
	if err != nil {
		return err
	}
	over := make(chan error, 1)
	l.work.Go(func() {
		defer leave()
		replaced, err := l.load(l.ctx, sources[i], true)
		over <- err
		l.forget(replaced)
	})
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unload makes a model unavailable for a client. Errors, for clients: NotFound.
func (l *loader) unload(ctx context.Context, name string) error {
	leave, err := l.turn(ctx, name)
	if err != nil {
		return err
	}
	m, err := l.engine.Model(name, "")
	if err != nil {
		leave()
		return err
	}
	_, _ = l.engine.SetModel(models.Broken(models.Source{Name: name}, errUnloaded, ""))
	l.work.Go(func() {
		defer leave()
		l.forget(m)
	})
	return nil
}

// turn waits for the turn of a model; leave ends it. Errors: the end of ctx.
func (l *loader) turn(ctx context.Context, name string) (leave func(), err error) {
	l.mu.Lock()
	turn := l.turns[name]
	if turn == nil {
		turn = make(chan struct{}, 1)
		l.turns[name] = turn
	}
	l.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another load of model %s: %w", name, context.Cause(ctx))
	}
}

// stillLoading is the time between two records in the log about a load that lasts.
const stillLoading = 30 * time.Second

// load loads a model and returns the one that it replaced. If it fails, the model that was loaded before is served.
// Errors, for clients: NotReady.
func (l *loader) load(ctx context.Context, s models.Source, fresh bool) (replaced *engine.Model, err error) {
	began := time.Now()
	took := func() time.Duration { return time.Since(began).Round(time.Millisecond) }
	l.log.Info("loading a model", "model", s.Name)
	var still *time.Timer
	still = time.AfterFunc(stillLoading, func() {
		l.log.Warn("a model is still being loaded", "model", s.Name, "since", took())
		still.Reset(stillLoading)
	})
	d, err := l.backend.Load(ctx, s, fresh)
	still.Stop()
	if err != nil { // The server drains, or the models are loaded again.
		l.log.Warn("the load of a model was interrupted", "model", s.Name, "took", took())
		return nil, oip.Errorf(oip.NotReady, "the load of model %s was interrupted", s.Name)
	}
	before, _ := l.engine.Model(s.Name, "")
	if d.Broken != "" {
		l.log.Error("a model is not loaded", "model", s.Name, "reason", d.Detail, "took", took())
		if before != nil && before.Definition().Broken == "" {
			before.SetFault(d.Broken)
			return nil, oip.Errorf(oip.NotReady, "model %s is not loaded: %s; the one that was loaded before is served", s.Name, d.Broken)
		}
	}
	if replaced, err = l.engine.SetModel(d); err != nil {
		return nil, err
	}
	if d.Broken != "" {
		return nil, oip.Errorf(oip.NotReady, "model %s is not ready: %s", s.Name, d.Broken)
	}
	l.log.Info("a model is loaded", "model", s.Name, "took", took())
	return replaced, nil
}

// forget waits for the requests of a model that was replaced or removed, if there is one, and frees its memory.
func (l *loader) forget(m *engine.Model) {
	if m == nil || m.Definition().Broken != "" {
		return
	}
	late, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	if err := m.Wait(late); err != nil {
		l.log.Error("calls of a replaced model do not end", "model", m.Meta().Name, "error", err)
		return
	}
	l.backend.Unload(late, m.Definition())
}

// close ends all models. l.ctx has ended.
func (l *loader) close(ctx context.Context) error {
	l.work.Wait()
	return l.backend.CloseRunner(ctx)
}
