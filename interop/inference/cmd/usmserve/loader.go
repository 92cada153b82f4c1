package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/backend"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// loader loads the models of an engine.
type loader struct {
	directory string // "" for the built-in models
	backend   *backend.Backend
	engine    *engine.Engine
	log       *slog.Logger
	timeout   time.Duration // of the wait for requests of replaced models

	mu       sync.Mutex      // held while models are loaded
	sources  []models.Source // the sources of loaded
	loaded   *backend.Loaded // nil before the first load
	replaced sync.WaitGroup  // models that were replaced and have not ended
}

// load loads all models from their files. If one is not "", it reads only the file of that model: the other models
// are imported again from their current text, because models can import each other. The replaced models end when
// their requests have ended. Errors, for clients: NotFound.
func (l *loader) load(ctx context.Context, one string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	began := time.Now()
	directory, sources := "", models.Builtin()
	if l.directory != "" {
		var err error
		if sources, err = models.Read(l.directory); err != nil {
			return err
		}
		directory = filepath.Dir(sources[0].File) // the absolute path
	}
	if one != "" {
		isOne := func(s models.Source) bool { return s.Name == one }
		i := slices.IndexFunc(sources, isOne)
		if i < 0 {
			return oip.Errorf(oip.NotFound, "no model is called %s", oip.Quote(one))
		}
		sources = append(slices.DeleteFunc(slices.Clone(l.sources), isOne), sources[i])
		slices.SortFunc(sources, func(a, b models.Source) int { return strings.Compare(a.File, b.File) }) // as read
	}
	loaded, err := l.backend.Load(ctx, directory, sources)
	if err != nil {
		return err
	}
	ended, err := l.engine.SetModels(loaded.Runner, loaded.Models, one)
	if err != nil {
		return errors.Join(err, loaded.Close(ctx))
	}
	l.sources = sources
	ready := len(loaded.Models)
	for _, d := range loaded.Models {
		if d.Broken != "" {
			ready--
			l.log.Error("a model is not served", "model", d.Meta.Name, "reason", d.Detail)
		}
	}
	l.log.Info("models are loaded", "models", len(loaded.Models), "ready", ready, "took", time.Since(began).Round(time.Millisecond))
	old := l.loaded
	if l.loaded = loaded; old != nil {
		l.replaced.Go(func() {
			late, cancel := context.WithTimeout(context.Background(), l.timeout)
			defer cancel()
			if err := errors.Join(ended(late), old.Close(late)); err != nil {
				l.log.Error("calls of replaced models do not end", "error", err)
			}
		})
	}
	return nil
}

// reload is load for a server that has models, and Options.Load of the engine: it logs the error. Errors, for clients:
// NotFound, NotReady also for a model that cannot be served.
func (l *loader) reload(ctx context.Context, one string) error {
	err := l.load(ctx, one)
	if _, unknown := errors.AsType[*oip.Error](err); err != nil && !unknown {
		l.log.Error("cannot reload the models; the current ones are served", "error", err)
		return oip.Errorf(oip.NotReady, "the models could not be loaded; the log of the server has the reason")
	}
	if err != nil || one == "" {
		return err
	}
	m, err := l.engine.Model(one, "")
	if err != nil {
		return err
	}
	return m.Ready()
}

// close ends all models.
func (l *loader) close(ctx context.Context) error {
	l.replaced.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded != nil {
		return l.loaded.Close(ctx)
	}
	return nil
}
