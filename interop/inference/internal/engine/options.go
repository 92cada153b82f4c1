package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Definition is a model and how it is called.
type Definition struct {
	Meta oip.Model
	// Function is called with the inputs in the order of Meta, as arrays, and behind them,
	// if Bound, with the outputs, as arrays to be written. Else it returns a list of the
	// outputs, as arrays.
	Function string // "module:name"
	Bound    bool
	// Shapes, where it is set, is called with the shapes of the inputs, as lists of
	// integers, and returns a list of those of the outputs. Without it the n-th free extent
	// of an output is the n-th free extent of the first input with as many of them.
	Shapes string
	// Serial says that one call of this kind may run at a time.
	Serial bool
	// WritesAll says that a model that is Bound writes every element of its outputs. The memory
	// of one that may not is cleared before the call.
	WritesAll bool
	// Broken is the reason why the model cannot be called; "" if it can. Of a broken model only the
	// name is used.
	Broken string
}

// Options say what an Engine serves, and within which bounds. What is 0 is a default.
type Options struct {
	Name, Version string // of the server, in its metadata
	Models        []Definition
	// Runner runs the functions of the models. The caller closes it after Close. Without it the engine
	// is not ready until SetModels.
	Runner executor.Runner
	// Memory is where tensors lie; the host must be able to read it. It stays the caller's,
	// to be closed after Close.
	Memory *memmgr.Pool
	// ForModels chooses where arrays lie that models make in a call, for a queue and a kind of
	// memory: account, which is the request's tenant's in Calls, or anything else. nil: the runner's
	// choice, which no tenant is charged for.
	ForModels func(account memmgr.Resource, q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error)
	// Limit is how many bytes Memory can give, of which a tenant may have seven eighths, and
	// comes last above a quarter. 0: no limit.
	Limit uint64
	// Calls is where calls that run find memory: for copies of what models return, and, where
	// ForModels says so, for what they allocate. It is to be apart from Memory: there requests
	// that wait for their turn may have everything, and a call that waited for them would wait
	// for itself. CallsLimit is how many bytes it can give, shared as Limit is. nil: Memory.
	Calls      *memmgr.Pool
	CallsLimit uint64
	// Regions are clients' memory; nil where it is not served. They stay the caller's.
	Regions *region.Registry
	// Apart says that models run where only memory of Memory is seen, in other processes:
	// what lies in regions is copied, into Memory before the call and from there after it.
	Apart bool

	Turns     int           // calls of one tenant at a time while it is alone; 4. Of serial models there are 2.
	Shared    int           // calls of one tenant at a time while others are active; a quarter of Turns, at least 1
	Requests  int           // requests of serial models, and of the others; 1024
	PerTenant int           // of these, requests of one tenant; half of Requests
	Tenants   int           // tenants in the table; 1024. Clients without a place there are one tenant together.
	Timeout   time.Duration // of a request, which may have a shorter one; 30 s
	Grace     time.Duration // time that a call may run past its deadline until the server is not ready; 2 s
	Patience  time.Duration // time that the runner may be stuck until Live returns an error; a minute
	Log       *slog.Logger  // slog.Default()
}

// complete fills in defaults and checks.
func (o *Options) complete() error {
	if o.Memory == nil {
		return errors.New("engine: Options.Memory is nil")
	}
	if o.Runner == nil {
		o.Runner = noRunner{}
	}
	if !o.Memory.Place().HostReadable() {
		return fmt.Errorf("engine: tensors must lie in memory that the host can read, and that of pool %s is not: %s", o.Memory.Name(), o.Memory.Place())
	}
	if o.Calls != nil && !o.Calls.Place().HostReadable() {
		return fmt.Errorf("engine: outputs must lie in memory that the host can read, and that of pool %s is not: %s", o.Calls.Name(), o.Calls.Place())
	}
	for _, n := range []*int{&o.Turns, &o.Shared, &o.Requests, &o.PerTenant, &o.Tenants} {
		if *n < 0 {
			return errors.New("engine: a bound in Options is negative")
		}
	}
	if o.Timeout < 0 || o.Grace < 0 || o.Patience < 0 {
		return errors.New("engine: a time in Options is negative")
	}
	orElse(&o.Name, "usmbridge")
	orElse(&o.Turns, 4)
	orElse(&o.Shared, max(o.Turns/4, 1))
	orElse(&o.Requests, 1024)
	orElse(&o.PerTenant, max(o.Requests/2, 1))
	orElse(&o.Tenants, 1024)
	orElse(&o.Timeout, 30*time.Second)
	orElse(&o.Grace, 2*time.Second)
	orElse(&o.Patience, time.Minute)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return nil
}

func orElse[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Check refuses a definition that cannot be served, and says why.
func (d *Definition) Check() error {
	if d.Broken != "" && d.Meta.Name != "" {
		return nil
	}
	if d.Meta.Name == "" || d.Function == "" {
		return fmt.Errorf("engine: model %q has no name or no function", d.Meta.Name)
	}
	if len(d.Meta.Inputs) == 0 || len(d.Meta.Outputs) == 0 {
		return fmt.Errorf("engine: model %s: it needs an input and an output", d.Meta.Name)
	}
	for _, tensors := range [][]oip.Tensor{d.Meta.Inputs, d.Meta.Outputs} {
		names := map[string]bool{}
		for _, t := range tensors {
			if t.Name == "" || names[t.Name] {
				return fmt.Errorf("engine: model %s: the name %q is empty or there twice", d.Meta.Name, t.Name)
			}
			names[t.Name] = true
			if _, err := t.Datatype.DType(); err != nil {
				return fmt.Errorf("engine: model %s: %s: %w", d.Meta.Name, t.Name, err)
			}
			known := make([]int64, len(t.Shape))
			for i, extent := range t.Shape {
				if extent < -1 {
					return fmt.Errorf("engine: model %s: %s: extent %d: want -1 or more", d.Meta.Name, t.Name, extent)
				}
				known[i] = max(extent, 0)
			}
			if _, err := oip.Bytes(t.Datatype, known); err != nil {
				return fmt.Errorf("engine: model %s: %s: %w", d.Meta.Name, t.Name, err)
			}
		}
	}
	if !d.Bound || d.Shapes != "" {
		return nil
	}
	for i := range d.Meta.Outputs {
		if _, err := extentsFrom(d.Meta.Inputs, &d.Meta.Outputs[i]); err != nil {
			return fmt.Errorf("engine: model %s: %w", d.Meta.Name, err)
		}
	}
	return nil
}

// free counts the free extents of a shape.
func free(shape []int64) (n int) {
	for _, extent := range shape {
		if extent < 0 {
			n++
		}
	}
	return n
}

// extentsFrom finds the input whose free extents are those of an output, -1 for none needed.
func extentsFrom(inputs []oip.Tensor, out *oip.Tensor) (int, error) {
	n := free(out.Shape)
	if n == 0 {
		return -1, nil
	}
	i := slices.IndexFunc(inputs, func(in oip.Tensor) bool { return free(in.Shape) == n })
	if i < 0 {
		return 0, fmt.Errorf("output %s has %d free extents and no input has as many: it needs a function that tells its shape", out.Name, n)
	}
	return i, nil
}
