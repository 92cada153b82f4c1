package backend

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/workers"
)

// spawn runs the models in worker processes. It returns when one is ready.
func (l *Loaded) spawn(ctx context.Context, o *Options, name, script string) (described any, err error) {
	pool, err := workers.New(workers.Config{
		Workers: o.Workers, Queue: queue, Grace: o.Grace, Least: 1,
		Modules: []workers.Module{{Name: name, Source: script}},
		Warm:    []string{name + ":" + models.WarmAll},
		Output:  &lines{log: o.Log},
	})
	if err != nil {
		return nil, err
	}
	l.Runner, l.Workers = pool, pool
	if err := pool.Ready(ctx); err != nil {
		return nil, err
	}
	return pool.Call(ctx, name+":"+models.Describe)
}

// The bounds of what workers write to the log: a crash dump has thousands of lines.
const (
	maxLines    = 200 // in an interval
	maxLine     = 4 << 10
	logInterval = 10 * time.Second
)

// lines writes the output of workers to a log, one record per line. A piece without the end of its
// line is a record too: the next piece may be of another worker. Lines beyond the bounds are counted.
type lines struct {
	log     *slog.Logger
	from    time.Time // the begin of the interval
	written int
	dropped int
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(l.from) > logInterval {
		l.reportDropped()
		l.from, l.written = now, 0
	}
	for line := range bytes.SplitSeq(p, []byte("\n")) {
		switch {
		case len(line) == 0:
		case l.written == maxLines:
			l.dropped++
			if l.dropped == 1 {
				l.log.Warn("workers write too much: further lines are dropped for some seconds")
			}
		default:
			l.written++
			l.log.Info("a worker writes", "line", string(line[:min(len(line), maxLine)]))
		}
	}
	return len(p), nil
}

func (l *lines) reportDropped() {
	if l.dropped > 0 {
		l.log.Warn("lines of workers were dropped", "lines", l.dropped)
		l.dropped = 0
	}
}
