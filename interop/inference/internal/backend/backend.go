package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// DefaultSlots is how many calls of models run at a time where nobody says.
const DefaultSlots = 2

// Options say what runs, and on how much.
type Options struct {
	Sources   []models.Source
	Bootstrap string // what loads and calls them: see models.Script
	Limit     uint64 // bytes of tensors, of arrays that models make in calls, and of Regions
	Regions   uint64 // bytes of Limit that clients' shared memory may take; less than three quarters of it
	Slots     int    // calls of models at a time, besides one of serial ones; DefaultSlots
	Workers   int    // processes that run models instead of this one; 0 for none
	Queue     int    // calls that may wait for a slot, or a worker; 64
	Grace     time.Duration
	Log       *slog.Logger // slog.Default()
}

// Backend is what an engine stands on.
type Backend struct {
	// Memory is for the tensors of requests and Calls, a quarter of Options.Limit, for what
	// calls allocate: engine.Options have the same.
	Memory, Calls     *memmgr.Pool
	Limit, CallsLimit uint64
	Runner            executor.Runner
	Models            []engine.Definition
	// Queue and Kind are of the memory; the host's queue where there is no SYCL.
	Queue *syclobj.Queue
	Kind  syclobj.USMKind
	// Turns is how many requests keep the runner busy: those that run, and those that are ready to.
	// Shared is how many of one client run while others are about, who find the rest idle.
	Turns, Shared int
	// Workers are the processes that run models; nil where this one does.
	Workers *workers.Pool

	ready  func(context.Context) error
	memory *memory
	module *python.Object
	log    *slog.Logger
}

// Open makes the memory, imports the models and begins to warm them up, which Ready waits
// for; of workers it waits itself until one is warm, or ctx ends. There is one Backend in a
// process at a time. Errors: models.ErrRefused for models that cannot be served, with file and
// reason of each; no Python.
func Open(ctx context.Context, o Options) (_ *Backend, err error) {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Slots <= 0 {
		o.Slots = DefaultSlots
	}
	if o.Limit == 0 {
		return nil, errors.New("backend: Options want a Limit")
	}
	rt, err := openRuntime()
	if err != nil {
		return nil, err
	}
	m, err := openMemory(rt, o.Limit, o.Regions, o.Workers > 0, o.Log)
	if err != nil {
		return nil, err
	}
	b := &Backend{Memory: m.pool, Calls: m.calls, Limit: m.poolLimit, CallsLimit: m.callsLimit, Queue: m.queue, Kind: m.kind, memory: m, log: o.Log}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close(context.Background()))
		}
	}()
	if why := rt.SYCLError(); why != nil {
		o.Log.Info("no SYCL: tensors lie in memory of the host", "reason", why)
	}
	script, err := models.Script(o.Bootstrap, o.Sources)
	if err != nil {
		return b, err
	}
	if o.Workers > 0 {
		return b, b.spawn(ctx, o, script)
	}
	return b, b.embed(o, script)
}

// turnsPerSlot is how many requests a slot has in hand, so that it takes several short calls at a
// stretch and wakes nobody between them. (Sobel of 1 KiB, 32 clients: 7840 requests a second with 2,
// 9405 with 4, 9985 with 8.)
const turnsPerSlot = 4

func half(n int) int { return (n + 1) / 2 }

// embed runs the models in this process.
func (b *Backend) embed(o Options, script string) error {
	py, err := startPython()
	if err != nil {
		return err
	}
	if b.module, err = py.Module(models.Module, script); err != nil {
		return fmt.Errorf("backend: %w", explain(err))
	}
	described, err := b.ask("describe")
	if err != nil {
		return err
	}
	if b.Models, err = models.Definitions(described, o.Sources); err != nil {
		return err
	}
	config := executor.Config{Slots: o.Slots, Queue: o.Queue, Wait: true, Grace: o.Grace}
	for _, d := range b.Models {
		name := d.Meta.Name
		config.Warm = append(config.Warm, executor.Step{Name: name, Serial: d.Serial, Run: func(context.Context, *python.Interpreter) error {
			return b.warm(name)
		}})
		if d.Serial {
			config.Serial = append(config.Serial, d.Function, d.Shapes)
		}
	}
	config.Serial = notEmpty(config.Serial)
	e, err := executor.New(py, config)
	if err != nil {
		return err
	}
	b.Runner, b.ready, b.Turns = e, e.Ready, turnsPerSlot*o.Slots
	b.Shared = half(o.Slots)
	return nil
}

func notEmpty(list []string) (out []string) {
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// warm has one model do what takes longer the first time.
func (b *Backend) warm(name string) error {
	began := time.Now()
	troubles, err := b.ask("warm", name)
	if err != nil {
		return fmt.Errorf("model %s: %w", name, err)
	}
	for name, why := range models.Troubles(troubles) {
		b.log.Warn("a model did not like its first call, on zeros: if it wants another one, give it a function warm()", "model", name, "traceback", why)
	}
	b.log.Info("model is warm", "model", name, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// ask calls a function of the module that has the models.
func (b *Backend) ask(function string, args ...any) (any, error) {
	o, err := b.module.Method(function, args...)
	if err != nil {
		return nil, explain(err)
	}
	defer o.Release()
	return o.Value()
}

// explain adds the traceback, which is for whoever wrote the model.
func explain(err error) error {
	if p, ok := errors.AsType[*python.Error](err); ok {
		return fmt.Errorf("%w\n%s", err, p.Traceback)
	}
	return err
}

// ForModels is engine.Options.ForModels: arrays of the pool's kind of memory are charged to the
// account. Workers make theirs in memory of their own.
func (b *Backend) ForModels(account memmgr.Resource, q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	return b.memory.choose(account, q, kind)
}

// Ready waits until the models are warm. Errors: a model's function warm that failed, and the
// context's.
func (b *Backend) Ready(ctx context.Context) error {
	if err := b.ready(ctx); err != nil {
		return explain(err)
	}
	return nil
}

// Close ends calls, as executor.Runner.Close does, and closes the memory; End ends Python.
// Errors: calls that do not end, and a *memmgr.LeakError where memory is still in use: a
// model may have kept arrays.
func (b *Backend) Close(ctx context.Context) error {
	var err error
	if b.Runner != nil {
		err = b.Runner.Close(ctx)
	}
	if b.module != nil {
		b.module.Release()
	}
	memmgr.Flush()
	return errors.Join(err, b.memory.close())
}
