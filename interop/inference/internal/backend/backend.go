// Package backend provides what models need: memory for tensors, with a limit, and Python, in this
// process or in workers. It loads models and returns their definitions and a runner, for an engine.
package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/models"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

// DefaultSlots is the default number of calls of models at a time.
const DefaultSlots = 2

// Options configure a Backend.
type Options struct {
	Limit   uint64 // bytes of tensors, of arrays that models make in calls, and of Regions
	Regions uint64 // bytes of Limit for shared memory of clients; less than three quarters of it
	Slots   int    // calls of models at a time, in addition to one of serial models; DefaultSlots
	Workers int    // processes that run models instead of this one; 0 for none
	Grace   time.Duration
	Log     *slog.Logger
}

// Backend is the memory of an engine and the processes that run models.
type Backend struct {
	// Memory is for the tensors of requests. Calls and Results, an eighth of Options.Limit each, are for what calls
	// allocate, and for copies of what they return: see engine.Options.
	Memory, Calls, Results engine.Pool
	// Queue and Kind are those of the memory: shared USM of the default device, which host and device
	// both reach. Without SYCL, they are the host's queue and USMUnknown.
	Queue *syclobj.Queue
	Kind  syclobj.USMKind

	options  Options
	runtime  *syclobj.Runtime
	segments *segment.Resource   // below the pools, if workers map them
	python   *python.Interpreter // nil with workers
	loads    int
}

// The SYCL runtime and Python exist once per process. The first backend starts them, and later ones use them.
var (
	openRuntime = sync.OnceValues(func() (*syclobj.Runtime, error) { return syclobj.Open() })
	startPython = sync.OnceValues(func() (*python.Interpreter, error) {
		rt, err := openRuntime()
		if err == nil {
			// Memory that models allocate outside of calls is in the default pools.
			err = pymodule.Register(pymodule.SetRuntime(rt))
		}
		if err != nil {
			return nil, err
		}
		return python.Start()
	})
)

// Open allocates the memory and starts Python. There is one Backend in a process at a time. Errors: no
// Python.
func Open(o Options) (*Backend, error) {
	o.Slots = cmp.Or(o.Slots, DefaultSlots)
	rt, err := openRuntime()
	if err != nil {
		return nil, fmt.Errorf("backend: SYCL: %w", err)
	}
	b := &Backend{options: o, runtime: rt}
	if err := b.openMemory(rt); err != nil {
		return nil, err
	}
	if why := rt.SYCLError(); why != nil {
		o.Log.Info("no SYCL: tensors are in host memory", "reason", why)
	}
	if o.Workers == 0 {
		if b.python, err = startPython(); err != nil {
			err = fmt.Errorf("backend: models need Python with usmbridge's packages (`make python` sets it up in .venv): %w", err)
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// openMemory makes the pools.
func (b *Backend) openMemory(rt *syclobj.Runtime) error {
	b.Queue, b.Kind = rt.DefaultQueue(), syclobj.USMShared
	if b.Queue.IsHost() {
		b.Kind = syclobj.USMUnknown
	}
	from, err := b.upstream(rt)
	if err != nil {
		return err
	}
	limit := b.options.Limit
	pool := func(name string, bytes uint64) engine.Pool {
		return engine.Pool{Pool: memmgr.NewPool(memmgr.NewLimit(from, bytes), memmgr.WithName(name)), Limit: bytes}
	}
	b.Memory = pool("tensors", max(limit-limit/4-min(b.options.Regions, limit/2), 1))
	b.Calls, b.Results = pool("calls", max(limit/8, 1)), pool("results", max(limit/8, 1))
	memmgr.SetDefaultLimit(max(limit/2, 1))
	return nil
}

// upstream returns the upstream of the pools. Memory for workers is in segments that they can map.
func (b *Backend) upstream(rt *syclobj.Runtime) (_ memmgr.Resource, err error) {
	switch {
	case b.options.Workers == 0 && b.Queue.IsHost():
		return memmgr.Host(), nil
	case b.options.Workers == 0:
		return memmgr.USM(b.Queue, b.Kind), nil
	}
	if !b.Queue.IsHost() {
		if b.segments, err = segment.NewUSM(b.Queue, b.Kind, segment.PeersWrite); err == nil {
			return b.segments, nil
		}
		b.options.Log.Warn("USM of this device cannot be shared with workers: tensors are in host memory", "reason", err)
		b.Queue, b.Kind = rt.HostQueue(), syclobj.USMUnknown
	}
	if b.segments, err = segment.NewHost(segment.PeersWrite); err != nil {
		return nil, fmt.Errorf("backend: memory for workers: %w", err)
	}
	return b.segments, nil
}

// ForModels is engine.Options.ForModels: arrays of the kind of memory of the pools are in Calls, and other
// arrays are in the default pools. Workers have memory of their own.
func (b *Backend) ForModels(q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	host := q == nil || q.IsHost()
	if host && b.Queue.IsHost() || !host && !b.Queue.IsHost() && kind == b.Kind && q.Context().Equal(b.Queue.Context()) && q.Device().Equal(b.Queue.Device()) {
		return b.Calls.Pool, nil
	}
	p, err := memmgr.Default(q, kind)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// queue is the number of calls that wait for a slot or a worker, and of those that wait for the slot of serial
// models. Further requests are refused.
const queue = 512

// Loaded is the models of one load, and their runner.
type Loaded struct {
	Runner executor.Runner
	Models []engine.Definition

	module *python.Object
}

// Load imports and warms models. directory is that of the sources; "" for built-in ones. A model that
// fails is a Broken definition. Load is not called concurrently. Errors: ctx ended, or no worker
// starts.
func (b *Backend) Load(ctx context.Context, directory string, sources []models.Source) (_ *Loaded, err error) {
	b.loads++
	name := models.Module(b.loads)
	script, err := models.Script(b.loads, directory, sources)
	if err != nil {
		return nil, err
	}
	l := new(Loaded)
	defer func() {
		if err != nil {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			err = errors.Join(err, l.Close(ended))
		}
	}()
	var described any
	if b.options.Workers > 0 {
		described, err = l.spawn(ctx, &b.options, name, script)
	} else {
		described, err = l.embed(ctx, b, name, script, sources)
	}
	if err != nil {
		return nil, fmt.Errorf("backend: %w", explain(err))
	}
	l.Models, err = models.Definitions(described, sources)
	return l, err
}

// embed runs the models in this process.
func (l *Loaded) embed(ctx context.Context, b *Backend, name, script string, sources []models.Source) (described any, err error) {
	if l.module, err = b.python.Module(name, script); err != nil {
		return nil, err
	}
	if described, err = l.ask(models.Describe); err != nil {
		return nil, err
	}
	definitions, err := models.Definitions(described, sources)
	if err != nil {
		return nil, err
	}
	config := executor.Config{Slots: b.options.Slots, Queue: queue, Grace: b.options.Grace,
		Steps: []executor.Step{{Name: "models", Serial: true, Run: func(context.Context, *python.Interpreter) error {
			_, err := l.ask(models.WarmAll)
			return err
		}}}}
	for _, d := range definitions {
		for _, function := range []string{d.Function, d.Shapes} {
			if d.Serial && function != "" {
				config.Serial = append(config.Serial, function)
			}
		}
	}
	e, err := executor.New(b.python, config)
	if err != nil {
		return nil, err
	}
	l.Runner = e
	if err := e.Ready(ctx); err != nil {
		return nil, err
	}
	return l.ask(models.Describe)
}

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

// ask calls a function of the module that has the models.
func (l *Loaded) ask(function string) (any, error) {
	o, err := l.module.Method(function)
	if err != nil {
		return nil, explain(err)
	}
	defer o.Release()
	return o.Value()
}

// Close ends calls, as executor.Runner.Close does, and removes the models. Errors: calls that do not
// end.
func (l *Loaded) Close(ctx context.Context) error {
	var err error
	if l.Runner != nil {
		err = l.Runner.Close(ctx)
	}
	if l.module != nil {
		if err == nil {
			_, err = l.ask(models.Forget)
		}
		l.module.Release()
	}
	return err
}

// explain adds the traceback to a Python error.
func explain(err error) error {
	if p, ok := errors.AsType[*python.Error](err); ok {
		return fmt.Errorf("%w\n%s", err, p.Traceback)
	}
	return err
}

// Close closes the memory, after all that was loaded; End ends Python. Errors: a *memmgr.LeakError if
// memory is still in use: a model may have kept arrays.
func (b *Backend) Close() error {
	memmgr.Flush()
	err := errors.Join(b.Memory.Close(), b.Calls.Close(), b.Results.Close())
	if b.segments != nil {
		err = errors.Join(err, b.segments.Close())
	}
	return err
}

// End ends Python and closes the SYCL runtime, after every backend is closed. It is the last call of
// a process.
func (b *Backend) End() (err error) {
	if b.python != nil {
		err = b.python.Close()
	}
	return errors.Join(err, memmgr.CloseDefaults(), b.runtime.Close())
}
