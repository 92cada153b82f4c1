package backend

import (
	"context"

	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/workers"
)

// spawn runs the models in worker processes. It returns when one is ready.
func (l *Loaded) spawn(ctx context.Context, o *Options, name, script string) (described any, err error) {
	pool, err := workers.New(workers.Config{
		Workers: o.Workers, Queue: queue, Grace: o.Grace, Least: 1,
		Modules: []workers.Module{{Name: name, Source: script}},
		Warm:    []string{name + ":" + models.WarmAll},
	})
	if err != nil {
		return nil, err
	}
	l.Runner = pool
	if err := pool.Ready(ctx); err != nil {
		return nil, err
	}
	return pool.Call(ctx, name+":"+models.Describe)
}
