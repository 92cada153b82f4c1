package backend

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"

	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/workers"
)

// spawn runs the models in processes of their own.
func (b *Backend) spawn(ctx context.Context, o Options, script string) error {
	pool, err := workers.New(workers.Config{
		Workers: o.Workers, Queue: o.Queue, Wait: true, Grace: o.Grace, Least: 1,
		Modules: []workers.Module{{Name: models.Module, Source: script}},
		Warm:    []string{models.WarmAll},
		Output:  &lines{log: o.Log},
	})
	if err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	b.Runner, b.Workers, b.ready, b.Turns = pool, pool, pool.Ready, 2*o.Workers
	b.Shared = half(o.Workers)
	if err := pool.Ready(ctx); err != nil {
		return fmt.Errorf("backend: %w", explain(err))
	}
	described, err := pool.Call(ctx, models.Describe)
	if err != nil {
		return fmt.Errorf("backend: %w", explain(err))
	}
	b.Models, err = models.Definitions(described, o.Sources)
	return err
}

// lines writes what workers print to a log, a record for each line. A piece without the end of
// its line is a record too: what comes next may be another worker's.
type lines struct{ log *slog.Logger }

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	for line := range bytes.SplitSeq(p, []byte("\n")) {
		if len(line) > 0 {
			l.log.Info("a worker writes", "line", string(line))
		}
	}
	return len(p), nil
}
