// Package enginetest makes engines whose models are functions of Go, for tests of what stands
// on an engine.
package enginetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Model is a model in Go.
type Model struct {
	Meta   oip.Model
	Bound  bool
	Serial bool
	// Infer gets the inputs and, if Bound, the outputs that it writes, each in the order of
	// Meta; else it returns the outputs. Arrays are borrowed, what it returns is given away.
	Infer func(ctx context.Context, in, out []*usmarray.Array) ([]*usmarray.Array, error)
}

// Runner runs models as an executor does, each call on its caller's goroutine.
type Runner struct {
	models map[string]*Model
	bad    atomic.Pointer[error]
	closed atomic.Bool
	calls  atomic.Uint64
}

var _ executor.Runner = (*Runner)(nil)

// NewRunner makes a runner of models.
func NewRunner(models ...*Model) *Runner {
	r := &Runner{models: map[string]*Model{}}
	for _, m := range models {
		r.models[function(m)] = m
	}
	return r
}

func function(m *Model) string { return "go:" + m.Meta.Name }

// SetHealth has Health give an error; nil makes it well again.
func (r *Runner) SetHealth(err error) { r.bad.Store(&err) }

// Ready implements executor.Runner.
func (r *Runner) Ready(context.Context) error { return r.Health() }

// Health implements executor.Runner.
func (r *Runner) Health() error {
	if r.closed.Load() {
		return &executor.Error{Kind: executor.ErrClosed}
	}
	if err := r.bad.Load(); err != nil {
		return *err
	}
	return nil
}

// Stats implements executor.Runner.
func (r *Runner) Stats() executor.Stats { return executor.Stats{Slots: 1, Calls: r.calls.Load()} }

// Close implements executor.Runner.
func (r *Runner) Close(context.Context) error { r.closed.Store(true); return nil }

// CallEach implements executor.Runner. There is no function to call.
func (r *Runner) CallEach(_ context.Context, _, function, _ string) (string, error) {
	return "", &executor.Error{Op: function, Err: errors.New("no such function")}
}

// Call implements executor.Runner.
func (r *Runner) Call(ctx context.Context, name string, args ...any) (any, error) {
	m := r.models[name]
	switch {
	case m == nil:
		return nil, &executor.Error{Op: name, Err: errors.New("no such function")}
	case r.closed.Load():
		return nil, &executor.Error{Op: name, Kind: executor.ErrClosed}
	case ctx.Err() != nil:
		return nil, &executor.Error{Op: name, Err: ctx.Err()}
	}
	r.calls.Add(1)
	arrays := make([]*usmarray.Array, len(args))
	for i, a := range args {
		array, ok := a.(*usmarray.Array)
		if !ok {
			return nil, &executor.Error{Op: name, Err: fmt.Errorf("argument %d is a %T", i, a)}
		}
		arrays[i] = array
	}
	n := len(m.Meta.Inputs)
	out, err := m.Infer(ctx, arrays[:n], arrays[n:])
	if err != nil {
		return nil, &executor.Error{Op: name, Err: err}
	}
	if m.Bound {
		return nil, nil
	}
	list := make([]any, len(out))
	for i, a := range out {
		list[i] = a
	}
	return list, nil
}

// Definitions returns the definitions of models, for engine.Engine.SetModel.
func Definitions(models ...*Model) []engine.Definition {
	var out []engine.Definition
	for _, m := range models {
		out = append(out, engine.Definition{Meta: m.Meta, Function: function(m), Bound: m.Bound, Serial: m.Serial})
	}
	return out
}

// New is With for a runner of its own.
func New(t testing.TB, o engine.Options, models ...*Model) *engine.Engine {
	t.Helper()
	return With(t, NewRunner(models...), o, models...)
}

// With starts an engine over memory of the host and ends it with the test, which fails when
// requests or memory are left then. o may set anything; its Memory is made here, with its Limit, where it is not set.
func With(t testing.TB, runner executor.Runner, o engine.Options, models ...*Model) *engine.Engine {
	t.Helper()
	if o.Memory.Pool == nil {
		from := memmgr.Host()
		if o.Memory.Limit != 0 {
			from = memmgr.NewLimit(from, o.Memory.Limit)
		}
		o.Memory.Pool = memmgr.NewPool(from, memmgr.WithName(t.Name()))
	}
	pool := o.Memory.Pool
	if o.Regions == nil {
		o.Regions = region.New(region.Options{})
	}
	o.Runner = runner
	e := engine.New(o)
	for _, d := range Definitions(models...) {
		_, err := e.SetModel(d)
		require.NoError(t, err)
	}
	e.Loaded()
	require.NoError(t, e.Ready())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, e.Close(ctx), "requests must end")
		require.NoError(t, runner.Close(ctx))
		require.Eventually(t, func() bool { memmgr.Flush(); return pool.Stats().AllocatedBytes.Current == 0 },
			30*time.Second, 10*time.Millisecond, "memory must come back")
		require.NoError(t, pool.Close())
	})
	return e
}

// Identity copies x, FP32 of any length, to y. It is Bound.
func Identity() *Model {
	return &Model{
		Meta: oip.Model{Name: "identity", Versions: []string{"1"}, Platform: "go",
			Inputs:  []oip.Tensor{{Name: "x", Datatype: oip.FP32, Shape: []int64{-1}}},
			Outputs: []oip.Tensor{{Name: "y", Datatype: oip.FP32, Shape: []int64{-1}}}},
		Bound: true,
		Infer: func(_ context.Context, in, out []*usmarray.Array) ([]*usmarray.Array, error) {
			return nil, out[0].CopyFrom(in[0])
		},
	}
}

// Sum adds a and b, INT64 [-1, 2], and returns sum, INT64 [-1, 2], and total, FP64 [].
func Sum() *Model {
	return &Model{
		Meta: oip.Model{Name: "sum", Versions: []string{"1"}, Platform: "go",
			Inputs: []oip.Tensor{{Name: "a", Datatype: oip.INT64, Shape: []int64{-1, 2}}, {Name: "b", Datatype: oip.INT64, Shape: []int64{-1, 2}}},
			Outputs: []oip.Tensor{{Name: "sum", Datatype: oip.INT64, Shape: []int64{-1, 2}},
				{Name: "total", Datatype: oip.FP64, Shape: []int64{}}}},
		Infer: func(_ context.Context, in, _ []*usmarray.Array) ([]*usmarray.Array, error) {
			a, err := usmarray.ToSlice[int64](in[0])
			if err != nil {
				return nil, err
			}
			b, err := usmarray.ToSlice[int64](in[1])
			if err != nil {
				return nil, err
			}
			if len(a) != len(b) {
				return nil, errors.New("a and b differ in length")
			}
			total := 0.0
			for i := range a {
				a[i] += b[i]
				total += float64(a[i])
			}
			sum, err := usmarray.FromSlice(memmgr.Host(), a, in[0].Shape())
			if err != nil {
				return nil, err
			}
			all, err := usmarray.FromSlice(memmgr.Host(), []float64{total}, []int{})
			if err != nil {
				sum.Release()
				return nil, err
			}
			return []*usmarray.Array{sum, all}, nil
		},
	}
}

// Blocking is a model like Identity, called name, whose calls go on until release is closed,
// or their context ends. began gets a value when a call has begun.
func Blocking(name string) (m *Model, began <-chan struct{}, release chan<- struct{}) {
	in, out := make(chan struct{}, 1024), make(chan struct{})
	m = Identity()
	m.Meta.Name = name
	m.Infer = func(ctx context.Context, x, y []*usmarray.Array) ([]*usmarray.Array, error) {
		in <- struct{}{}
		select {
		case <-out:
			return nil, y[0].CopyFrom(x[0])
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return m, in, out
}

// Failing is a model like Identity, called "failing", whose calls fail with err.
func Failing(err error) *Model {
	m := Identity()
	m.Meta.Name = "failing"
	m.Infer = func(context.Context, []*usmarray.Array, []*usmarray.Array) ([]*usmarray.Array, error) {
		return nil, err
	}
	return m
}

// Call runs one request with one input of floats, like a transport, and returns the elements of its first output. values
// may have fewer elements than shape.
func Call(ctx context.Context, e *engine.Engine, model, input string, shape []int64, values []float32) ([]byte, error) {
	r, err := e.Begin(ctx, model, "")
	if err != nil {
		return nil, err
	}
	defer r.End()
	in, err := r.Input(input, "FP32", shape)
	if err != nil {
		return nil, err
	}
	if err := in.Fill(func(p []byte) error {
		for i, v := range values {
			binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	results, err := r.Run()
	if err != nil {
		return nil, err
	}
	return bytes.Clone(results[0].Bytes), nil
}

// Log is a buffer for the log of a server, which a test reads meanwhile.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
