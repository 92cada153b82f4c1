package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Definition is a model and how it is called.
type Definition struct {
	Meta oip.Model
	// Function gets the inputs in the order of Meta, as arrays, and after them, if Bound, the
	// outputs, as arrays to write. Otherwise it returns a list of the outputs, as arrays.
	Function string // "module:name"
	Bound    bool
	// Shapes, if set, gets the shapes of the inputs, as lists of integers, and returns a list of the
	// shapes of the outputs, as JSON. Without it, the n-th free extent of an output is the n-th free extent
	// of the first input with as many of them.
	Shapes string
	// Serial makes calls of this model run one at a time.
	Serial bool
	// WritesAll promises that a Bound model writes every element of its outputs. Without it their
	// memory is cleared before the call.
	WritesAll bool
	// Broken is the reason why the model cannot be called, for clients; "" if it can. Of a broken model only
	// the name is used. Detail is the same for the log: it may be a traceback.
	Broken, Detail string
}

// Pool is a pool with its limit in bytes, 0 for no limit.
type Pool struct {
	*memmgr.Pool
	Limit uint64
}

// Options configure an Engine. Zero values are defaults.
type Options struct {
	Name, Version string // of the server, in its metadata
	// Memory is for tensors; the host must be able to read it. The caller closes it after Close. A request has at
	// most seven eighths of its limit.
	Memory Pool
	// ForModels chooses the memory of arrays that models allocate in a call, by queue and kind: calls, which
	// is Calls, or another resource. nil: the runner chooses.
	ForModels func(calls memmgr.Resource, q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error)
	// Calls is what ForModels gets for the allocations of calls, and Results is for copies of returned outputs. A call
	// holds the first while it waits for the second, and waiting requests can fill Memory: one pool for two of them
	// would let requests wait for each other. nil: Memory.
	Calls, Results Pool
	// Regions is the shared memory of clients. The caller closes it after Close.
	Regions *region.Registry
	// Load loads a model for a client from its file again, and no other. Errors: NotFound, NotReady for a model that
	// cannot be served. nil: clients can neither load nor unload models.
	Load func(ctx context.Context, model string) error
	// Apart says that models run in other processes, which can see Memory alone: inputs in regions
	// are copied into Memory before the call, and outputs back after it.
	Apart bool

	MaxCalls int           // calls of all transports at a time, among them idle streams; 1024
	Timeout  time.Duration // of a request, which may have a shorter one; 30 s
	Patience time.Duration // time that the runner may be stuck until Live returns an error; a minute
	Log      *slog.Logger  // for details that clients must not see; slog.Default()
}

// Check returns an error for an invalid definition.
func (d *Definition) Check() error {
	_, err := newModel(nil, nil, *d)
	return err
}

// free returns the number of free extents of a shape.
func free(shape []int64) (n int) {
	for _, extent := range shape {
		if extent < 0 {
			n++
		}
	}
	return n
}

// extentsFrom returns the index of the input with as many free extents as an output has. It is an error if an output
// with free extents has none.
func extentsFrom(inputs []oip.Tensor, out *oip.Tensor) (int, error) {
	n := free(out.Shape)
	i := slices.IndexFunc(inputs, func(in oip.Tensor) bool { return free(in.Shape) == n })
	if i < 0 && n > 0 {
		return 0, fmt.Errorf("output %s has %d free extents and no input has as many; define output_shapes", out.Name, n)
	}
	return i, nil
}
