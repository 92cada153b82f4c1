// Package backend provides what models need: memory for tensors, with a limit, and Python, in this
// process or in workers. It loads models, one by one, for an engine.
package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	// LoadTime bounds the load of a model; 0 for no bound.
	LoadTime time.Duration
	Log      *slog.Logger
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
	// Runner runs the functions of the models. CloseRunner closes it.
	Runner executor.Runner

	options  Options
	runtime  *syclobj.Runtime
	segments *segment.Resource   // below the pools, if workers map them
	python   *python.Interpreter // nil with workers

	mu       sync.Mutex
	slots    map[int]bool   // of bootstrap.py, in use
	stranded map[string]int // slots of loads that did not end in time, by model
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

// Open allocates the memory and starts Python. There is one Backend in a process at a time. Close ends it, after
// CloseRunner. Errors: no Python.
func Open(o Options) (*Backend, error) {
	o.Slots, o.LoadTime = cmp.Or(o.Slots, DefaultSlots), cmp.Or(o.LoadTime, math.MaxInt64)
	rt, err := openRuntime()
	if err != nil {
		return nil, fmt.Errorf("backend: SYCL: %w", err)
	}
	b := &Backend{options: o, runtime: rt, slots: map[int]bool{}, stranded: map[string]int{}}
	if err := b.openMemory(rt); err != nil {
		return nil, err
	}
	if why := rt.SYCLError(); why != nil {
		o.Log.Info("no SYCL: tensors are in host memory", "reason", why)
	}
	if err := b.openRunner(); err != nil {
		err = fmt.Errorf("backend: models need Python with usmbridge's packages (`make python` sets it up in .venv): %w", err)
		return nil, errors.Join(err, b.Close())
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
// arrays are in the default pools. Workers have memory of their own, with the same bounds.
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

// openRunner starts the process, or the processes, that run models. It does not wait for them.
func (b *Backend) openRunner() (err error) {
	o := &b.options
	modules := []executor.Module{{Name: models.Module, Source: models.Bootstrap}}
	if o.Workers > 0 {
		// The workers together have the bounds of the pools of this process, and a result that of its copy here.
		n, results := uint64(o.Workers), b.Results.Limit
		memory := workers.Memory{Call: max(b.Calls.Limit/n, 1), Kept: max(o.Limit/2/n, 1), Result: max(results-results/8, 1)}
		b.Runner, err = workers.New(workers.Config{Workers: o.Workers, Queue: queue, Grace: o.Grace, StartTime: o.LoadTime, Modules: modules, Memory: memory})
		return err
	}
	if b.python, err = startPython(); err == nil {
		b.Runner, err = executor.New(b.python, executor.Config{Slots: o.Slots, Queue: queue, Grace: o.Grace, Modules: modules, Serial: []string{models.Serial}})
	}
	return err
}

// Load imports and warms a model, beside the calls of others. With fresh, it imports its helper modules again. A model
// that fails, or is not loaded within Options.LoadTime, is a Broken definition; so is one of which an earlier load still
// runs. Unload must follow for other definitions. Errors: the end of ctx.
func (b *Backend) Load(ctx context.Context, s models.Source, fresh bool) (engine.Definition, error) {
	if s.Problem != "" {
		return models.Broken(s, s.Problem, ""), nil
	}
	slot := b.takeSlot()
	job, err := models.Job(s, slot, fresh)
	if err != nil {
		return engine.Definition{}, err
	}
	limited, cancel := context.WithTimeout(ctx, b.options.LoadTime)
	defer cancel()
	described, err := b.Runner.CallEach(limited, s.Name, models.Load, job)
	var d engine.Definition
	switch within := fmt.Sprintf("it was not loaded within %v", b.options.LoadTime); {
	case err == nil:
		d = models.Definition(described, s)
	case errors.Is(err, executor.ErrStuck) && b.options.Workers == 0:
		return b.strand(s, slot, limited, within), ctx.Err()
	case limited.Err() != nil:
		d = models.Broken(s, within, explain(err).Error())
	case errors.Is(err, workers.ErrDied):
		d = models.Broken(s, "it ended the process of a worker", err.Error())
	default:
		d = models.Broken(s, "it cannot be loaded", explain(err).Error())
	}
	b.mu.Lock()
	old, late := b.stranded[s.Name]
	delete(b.stranded, s.Name)
	b.mu.Unlock()
	if late {
		b.Unload(ctx, engine.Definition{Meta: d.Meta, Load: old})
	}
	if d.Load = slot; d.Broken != "" {
		b.Unload(ctx, d)
	}
	return d, ctx.Err()
}

// strand returns the definition of a model whose load, or an earlier one, does not end. The thread keeps the slot, which
// the next load of the model empties.
func (b *Backend) strand(s models.Source, slot int, ctx context.Context, within string) engine.Definition {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() == nil {
		delete(b.slots, slot)
		return models.Broken(s, "an earlier load of it still runs", "")
	}
	b.stranded[s.Name] = slot
	return models.Broken(s, within+", and still runs", "")
}

// takeSlot returns the number of a slot that is not in use.
func (b *Backend) takeSlot() (slot int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.slots[slot] {
		slot++
	}
	b.slots[slot] = true
	return slot
}

// unloadTime bounds the wait for the collection of the memory of a model.
const unloadTime = time.Minute

// Unload removes a model that Load returned, after its last call, and frees its memory.
func (b *Backend) Unload(ctx context.Context, d engine.Definition) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unloadTime)
	defer cancel()
	if _, err := b.Runner.CallEach(ctx, "", models.Unload, fmt.Sprint(d.Load)); err != nil {
		b.options.Log.Warn("the memory of a model is not freed", "model", d.Meta.Name, "error", err)
		return // The slot is not used again.
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.slots, d.Load)
}

// CloseRunner ends calls, as executor.Runner.Close does, and removes all models. Errors: calls that do not end.
func (b *Backend) CloseRunner(ctx context.Context) error {
	err := b.Runner.Close(ctx)
	if err != nil || b.python == nil {
		return err
	}
	module, err := b.python.Import(models.Module)
	if err != nil {
		return explain(err)
	}
	defer module.Release()
	o, err := module.Method(models.Forget)
	o.Release()
	return err
}

// explain adds the traceback to a Python error.
func explain(err error) error {
	if p, ok := errors.AsType[*python.Error](err); ok {
		return fmt.Errorf("%w\n%s", err, p.Traceback)
	}
	return err
}

// Close closes the memory, after CloseRunner; End ends Python. Errors: a *memmgr.LeakError if
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
